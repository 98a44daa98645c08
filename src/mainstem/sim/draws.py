"""Numbers drawn so that small ones are frequent, the same on every machine.

By multiplication alone, which IEEE 754 says to the last bit: `**` on floats, like the functions of `math` and
`Random.gauss`, `expovariate` and their like, asks the C library, which has other code for other processors and rounds
otherwise in it. One last bit in a delay is another run.
"""

from random import Random


def squared(rng: Random) -> float:
    drawn = rng.random()
    return drawn * drawn


def cubed(rng: Random) -> float:
    drawn = rng.random()
    return drawn * drawn * drawn
