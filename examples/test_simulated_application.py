"""Testing an application in the simulator: it copies a topic into another, and must not lose a word whatever happens.

The application is the first half of this file. It is written with Mainstem's client; where it runs is decided by who
gives it a producer and a consumer. The tests run it with a broker that dies, loses its power and answers too late, with
a network that cuts and delays, and the application itself is killed now and then. It all takes a few seconds, because
time is simulated, and a seed brings the same disaster again.
"""

import asyncio

import pytest

from mainstem.client import AsyncConsumer, AsyncProducer, KafkaError
from mainstem.testing.simulation import Simulation, SimulationFailed, simulate

# The application


async def shout_some(consumer: AsyncConsumer, producer: AsyncProducer, *, careful: bool) -> int:
    """Reads words and writes them in capitals; how many it were."""
    words = await consumer.poll(200)
    if not careful:
        await consumer.commit()  # the bug: whoever dies now has never shouted these, and nobody else will
    for word in words:
        await producer.send_and_wait("shouts", (word.value or b"").upper())
    if careful and words:
        await consumer.commit()
    return len(words)


# Its tests

WORDS = 30
QUICK = {"request_timeout_ms": 1000, "reconnect_backoff_max_ms": 200, "retry_backoff_max_ms": 200}


async def speak(sim: Simulation) -> None:
    """Somebody who has something to say, once: it dies with the words that it had not said."""
    async with sim.producer(**QUICK) as producer:
        for number in range(WORDS):
            await producer.send_and_wait("words", b"word %d" % number)
            spoken.append(b"WORD %d" % number)
            await asyncio.sleep(sim.rng.random() * 0.2)


spoken: list[bytes] = []
"""What was acknowledged, and so must be shouted."""


def shouting(careful: bool):  # type: ignore[no-untyped-def]
    async def shout(sim: Simulation) -> None:
        while True:
            try:
                async with (
                    sim.producer(**QUICK) as producer,
                    sim.consumer(
                        "words",
                        group_id="shouting",
                        auto_offset_reset="earliest",
                        enable_auto_commit=False,
                        session_timeout_ms=1500,
                        heartbeat_interval_ms=300,
                        default_api_timeout_ms=3000,
                        **QUICK,
                    ) as consumer,
                ):
                    idle = 0
                    while idle < 10:  # until it has partitions, and for two seconds there was nothing in them
                        count = await shout_some(consumer, producer, careful=careful)
                        idle = 0 if count or not sim.is_over or not consumer.assignment else idle + 1
                    return
            except KafkaError as error:  # whoever runs the application starts it again
                sim.note(f"shouting begins anew: {error}")

    return shout


async def everything_was_shouted(sim: Simulation) -> None:
    async with sim.consumer("shouts", auto_offset_reset="earliest", **QUICK) as consumer:
        heard = []
        while records := await consumer.poll(1000):
            heard += [record.value for record in records]
    missing = [word for word in spoken if word not in heard]
    assert not missing, f"never shouted: {missing}"


def test_no_word_is_lost_whatever_happens() -> None:
    counts = simulate(
        {"speaker": speak, "shouter": shouting(careful=True)},
        topics={"words": 2, "shouts": 1},
        check=everything_was_shouted,
        before=spoken.clear,
        seeds=range(10),
    )
    assert counts["X2 kill"] > 0
    assert counts["client died"] > 0


def test_a_commit_that_comes_too_early_is_found() -> None:
    with pytest.raises(SimulationFailed, match="never shouted"):
        simulate(
            {"speaker": speak, "shouter": shouting(careful=False)},
            topics={"words": 2, "shouts": 1},
            check=everything_was_shouted,
            before=spoken.clear,
            seeds=range(100),
        )
