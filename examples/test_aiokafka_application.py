"""Testing an application that uses aiokafka: it copies a topic into another, and goes on where it was.

The application is the first half of this file and knows nothing of Mainstem.
"""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from mainstem.testing import Cluster

# The application


async def shout(bootstrap: str, count: int) -> None:
    """Reads `count` words and writes them in capitals."""
    consumer = AIOKafkaConsumer(
        "words",
        bootstrap_servers=bootstrap,
        group_id="shouting",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await consumer.start()
    await producer.start()
    try:
        async for word in consumer:
            await producer.send_and_wait("shouts", word.value.upper())
            await consumer.commit()
            count -= 1
            if count == 0:
                return
    finally:
        await producer.stop()
        await consumer.stop()


# Its tests


async def write(bootstrap: str, words: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for word in words:
            await producer.send_and_wait("words", word)


async def read(bootstrap: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer("shouts", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(count)]


def test_words_come_out_in_capitals(fresh_mainstem_cluster: Cluster) -> None:
    cluster = fresh_mainstem_cluster
    cluster.create_topic("words")
    cluster.create_topic("shouts")

    async def story() -> list[bytes]:
        await write(cluster.bootstrap, [b"a", b"b"])
        await asyncio.wait_for(shout(cluster.bootstrap, 2), 30)
        return await read(cluster.bootstrap, 2)

    assert asyncio.run(story()) == [b"A", b"B"]


def test_it_goes_on_where_it_was_after_the_broker_was_killed(fresh_mainstem_cluster: Cluster) -> None:
    cluster = fresh_mainstem_cluster
    cluster.create_topic("words")
    cluster.create_topic("shouts")

    async def story() -> list[bytes]:
        await write(cluster.bootstrap, [b"a", b"b"])
        await asyncio.wait_for(shout(cluster.bootstrap, 2), 30)
        await asyncio.to_thread(cluster.kill)
        await asyncio.to_thread(cluster.restart)
        await write(cluster.bootstrap, [b"c"])
        await asyncio.wait_for(shout(cluster.bootstrap, 1), 30)
        return await read(cluster.bootstrap, 3)

    assert asyncio.run(story()) == [b"A", b"B", b"C"]
