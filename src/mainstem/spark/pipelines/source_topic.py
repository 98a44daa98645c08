"""Which topic a pipeline has read, kept beside the offsets of its checkpoint.

A checkpoint has offsets by the name of a topic. One that was deleted and made anew has the same name, and once it has
as many records as the old one had, nothing else tells them apart: what is in it before the old offsets would never be
read. So the id of the topic is kept, too, which no other topic ever has.
"""

from __future__ import annotations

import asyncio
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mainstem.client.cluster import Cluster
from mainstem.client.options import ConsumerOptions
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark import questions
from mainstem.spark.options import Topics
from mainstem.spark.pipelines.durable import write_durably

TOPIC_FILE: Final = "topic.mainstem"


def topic_id(bootstrap: str, topic: str, option: str = "subscribe") -> bytes:
    """ValueError, by the name of `option`, where there is no such topic; zeros where brokers are too old to tell."""

    async def story() -> bytes:
        async with Cluster(ConsumerOptions(bootstrap_servers=bootstrap), random.Random()) as cluster:
            await questions.partitions(cluster, Topics(names=(topic,)), option)
            return cluster.cache.topics[topic].topic_id

    # Whoever calls this may be on a loop of their own, as in a notebook.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, story()).result()


def check_topic(checkpoint: Path, topic: str, found: bytes, folder: Path | None = None) -> None:
    """Notes what is read with this checkpoint; ValueError where it was another topic until now.

    `folder` is what the user has named, where that is not the checkpoint itself.
    """
    named = folder or checkpoint
    path = checkpoint / TOPIC_FILE
    # Before a first batch was planned nothing is bound to it: the topic may have been misspelt.
    if path.exists() and any((checkpoint / "offsets").glob("[0-9]*")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["topic"] != topic:
            raise ValueError(f"checkpoint: {named} is of topic {kept['topic']}; give {topic} one of its own")
        if ZERO_UUID.hex() in (kept["id"], found.hex()):
            return  # a broker that does not tell, then or now
        if kept["id"] != found.hex():
            raise ValueError(
                f"{topic} is not the topic that {named} was read from: it was deleted and made anew, or is another "
                f"cluster's. Begin in a new folder; where it has the same records at the same offsets, remove {path}"
            )
        return
    write_durably(path, json.dumps({"topic": topic, "id": found.hex()}))
