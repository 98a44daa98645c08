"""Clients beside each other on one Mainstem broker, for the rows that compare them.

Each measurement is a process of its own. Rounds go through all clients, forwards and backwards in turn, so that
whatever else the machine does meets all of them; the first round is not counted. What comes of one is records a second,
and the seconds of the processor that the client's process used for a million: on a machine that does other work the
second tells more than the first.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

from bench.frame import MAINSTEM, Figures, Result, Setting
from bench.systems import System

TIMEOUT_S: Final = 600
SLOW: Final = ("kafka_python", "aiokafka")
"""Those that get a tenth of the records: or they would take most of the time."""

Measured = tuple[float, float]
"""Records a second, and seconds of the processor for a million of them."""
Client = Callable[[str, str, int], Measured]
"""Called with the bootstrap server, the topic and the number of records."""


def compare(
    setting: Setting,
    module: str,
    clients: Mapping[str, Client],
    records: int,
    topic_maker: Callable[[System], Callable[[], str]],
    figures: Callable[[dict[str, Measured]], Figures],
) -> Result:
    """All clients of `module` on one broker. `topic_maker` prepares it and gives what names each client's topic."""
    result = Result()
    system = setting.systems()[MAINSTEM]
    try:
        system.start()
        topic = topic_maker(system)
        for number in range(setting.pairs + 1):
            names = list(clients) if number % 2 == 0 else list(clients)[::-1]
            found = {
                name: _in_a_process(module, name, system.bootstrap, topic(), records // 10 if name in SLOW else records)
                for name in names
            }
            shown = (f"{name} {found[name][0] / 1e6:.3g} M/s {found[name][1]:.2g} s/M" for name in clients)
            setting.say("  " + ", ".join(shown))
            if number > 0:
                result.rounds[MAINSTEM].append(figures(found))
    finally:
        system.kill()
    return result


def _in_a_process(module: str, client: str, bootstrap: str, topic: str, count: int) -> Measured:
    command = [sys.executable, "-m", module, client, bootstrap, topic, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{client}: {done.stderr[-2000:]}"
    rate, used = done.stdout.split()[-2:]
    return float(rate), float(used)


def one_measurement(clients: Mapping[str, Client]) -> None:
    """What such a process does: the client, the server, the topic and the number of records are its arguments."""
    print(*clients[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4])))
