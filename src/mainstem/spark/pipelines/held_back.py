"""What of a topic waits for a transaction to end: who reads what is committed stops there, and nothing else says so."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mainstem.client.cluster import Cluster
from mainstem.client.errors import KafkaError
from mainstem.client.options import ConsumerOptions
from mainstem.spark import questions
from mainstem.spark.offsets import LATEST, Offsets
from mainstem.spark.options import Topics

ASK_EVERY_S: Final = 5.0
ASK_WITHIN_S: Final = 15.0
"""It is only told besides: a pipeline does not wait for longer for it."""
SHOWN: Final = 3


def held_back(bootstrap: str, topic: str, within_s: float | None = None) -> Offsets:
    """How many offsets of each partition come after the first transaction that has not ended, where there is one."""

    async def ends(level: str) -> Offsets:
        options = ConsumerOptions(bootstrap_servers=bootstrap, isolation_level=level)
        async with Cluster(options, random.Random()) as cluster:
            there = await questions.partitions(cluster, Topics(names=(topic,)))
            return await questions.list_offsets(cluster, dict.fromkeys(there, LATEST))

    async def story() -> Offsets:
        # In this order: what comes between the two questions is not taken for something that waits.
        all_of_it, committed = await ends("read_uncommitted"), await ends("read_committed")
        counts = {where: end - committed.get(where, end) for where, end in all_of_it.items()}
        return {where: count for where, count in sorted(counts.items()) if count > 0}

    async def in_time() -> Offsets:
        return await asyncio.wait_for(story(), within_s)

    # Whoever calls this may be on a loop of their own, as in a notebook.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, in_time()).result()


def told(waiting: Mapping[tuple[str, int], int]) -> str:
    """Empty where nothing waits."""
    if not waiting:
        return ""
    places = [f"{count:,} offsets of {topic}-{number}" for (topic, number), count in waiting.items()]
    if len(places) > SHOWN:
        places[SHOWN:] = [f"{sum([*waiting.values()][SHOWN:]):,} of {len(places) - SHOWN} more partitions"]
    return f"{', '.join(places)} wait for an open transaction"


class Waiting:
    """Asks now and then, beside a pipeline that runs; what it cannot find out it does not tell."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"held back of {topic}", daemon=True)
        self.latest: Offsets = {}

    def __enter__(self) -> Waiting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def ask(self) -> Offsets:
        try:
            self.latest = held_back(self._bootstrap, self._topic, ASK_WITHIN_S)
        except (KafkaError, TimeoutError, ValueError):
            self.latest = {}
        return self.latest

    def _watch(self) -> None:
        while not self._is_over.wait(ASK_EVERY_S):
            self.ask()
