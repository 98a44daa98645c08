"""What the file comparison has Kafka write: topics that between them reach every file and every reason to roll."""

import time
from random import Random

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPICS: dict[str, dict[str, str]] = {
    "plain": {"segment.bytes": "1048576", "index.interval.bytes": "4096"},
    "dense": {"segment.bytes": "1048576", "index.interval.bytes": "0"},
    "index-full": {"segment.bytes": "1048576", "index.interval.bytes": "0", "segment.index.bytes": "100"},
    "timed": {"segment.ms": "60000", "index.interval.bytes": "100"},
    "stamped": {"message.timestamp.type": "LogAppendTime", "index.interval.bytes": "200"},
    "codecs": {"segment.bytes": "1048576", "index.interval.bytes": "1000"},
    "idempotent": {"segment.bytes": "1048576", "index.interval.bytes": "2000"},
    "transactions": {"segment.bytes": "1048576", "index.interval.bytes": "2000"},
    "empty": {},
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    fresh = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for name, done in admin.create_topics(fresh).items():
        try:
            done.result(60)
        except KafkaException as error:
            raise AssertionError(f"{name}: {error}") from error


def end_offsets(bootstrap: str) -> dict[str, int]:
    """By topic, the high watermark of its partition."""
    settings = {"group.id": "looking", "isolation.level": "read_uncommitted", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    try:
        return {topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)[1] for topic in TOPICS}
    finally:
        consumer.close()


def produce_everything(bootstrap: str) -> None:
    rng = Random(20)
    plain = _producer(bootstrap)
    for _ in range(40):
        _batch(plain, rng, "plain", records=rng.randrange(1, 6), value_max=20_000)
    for size in (10, 700_000, 10, 700_000, 900_000):
        _batch(plain, rng, "plain", records=1, value_max=size, value_min=size)
    for _ in range(30):
        _batch(plain, rng, "dense", records=rng.randrange(1, 4), value_max=200)
        _batch(plain, rng, "index-full", records=rng.randrange(1, 4), value_max=200)
        _batch(plain, rng, "stamped", records=rng.randrange(1, 4), value_max=200)
    _produce_with_chosen_times(plain, rng)
    for codec in CODECS * 3:
        producer = _producer(bootstrap, {"compression.type": codec})
        for _ in range(4):
            _batch(producer, rng, "codecs", records=rng.randrange(1, 200), value_max=300, headers=True)
    _produce_idempotently(bootstrap, rng)
    _produce_transactions(bootstrap, rng)


def _producer(bootstrap: str, settings: dict[str, str | int | bool] | None = None) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1000,  # `flush` sends at once: what was produced before it becomes one batch
            "message.max.bytes": 2_000_000,
            "log_level": 0,  # the producer that is left open complains of the stopped broker until the process ends
            **(settings or {}),
        }
    )


def _batch(
    producer: Producer,
    rng: Random,
    topic: str,
    records: int,
    value_max: int,
    value_min: int = 0,
    headers: bool = False,
) -> None:
    for _ in range(records):
        value = rng.randbytes(rng.randint(value_min, value_max) // 2).hex().encode()
        key = rng.choice([None, b"", b"key", rng.randbytes(8)])
        extra: list[tuple[str, str | bytes | None]] | None = None
        if headers and rng.random() < 0.3:
            extra = [("h", b"1"), ("empty", None)]
        producer.produce(topic, value=value, key=key, headers=extra)
    assert producer.flush(30) == 0


def _produce_with_chosen_times(producer: Producer, rng: Random) -> None:
    """Times that go forward, back, and past `segment.ms`: the time index and rolling by time."""
    now_ms = int(time.time() * 1000)
    at_ms = now_ms - 1_000_000
    for step in (0, 5, -3, 1000, 30_000, -20_000, 70_000, 10, 10, -5000, 200_000, 1, 59_990, 20, 0, 0, 61_000, 5):
        at_ms += step
        for back_ms in (0, 7, 3):
            producer.produce("timed", value=rng.randbytes(60), timestamp=at_ms - back_ms)
        assert producer.flush(30) == 0


def _produce_idempotently(bootstrap: str, rng: Random) -> None:
    producers = [_producer(bootstrap, {"enable.idempotence": True}) for _ in range(3)]
    for turn in range(60):
        _batch(producers[turn % 3], rng, "idempotent", records=rng.randrange(1, 5), value_max=20_000)


def _produce_transactions(bootstrap: str, rng: Random) -> None:
    producers = [_producer(bootstrap, {"transactional.id": f"writer-{n}"}) for n in range(2)]
    for producer in producers:
        producer.init_transactions(60)
    for turn in range(24):
        first, second = producers
        first.begin_transaction()
        second.begin_transaction()
        for _ in range(2):
            _batch(first, rng, "transactions", records=2, value_max=30_000)
            _batch(second, rng, "transactions", records=1, value_max=30_000)
        for producer in (first, second) if turn % 2 else (second, first):
            if rng.random() < 0.4:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    # Left open: a clean stop has to keep its start in the snapshot.
    producers[0].begin_transaction()
    _batch(producers[0], rng, "transactions", records=1, value_max=100)
    _left_open.append(producers[0])


_left_open: list[Producer] = []
"""A producer that is collected would abort its transaction."""
