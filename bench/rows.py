"""The rows of `docs/benchmarks.md`: what is done, what is counted, what is to be reached."""

import time

from bench import consuming, load, producing, protocol, records
from bench.frame import Figures, Metric, Row, one_by_one, ours_alone, side_by_side
from bench.spark import SPARK_ROWS
from bench.systems import System

KB_RECORDS = 300_000
SMALL_RECORDS = 1_000_000
SINGLE_RECORDS = 2_000
REQUESTS = 160_000
PRODUCERS = 8
TOPICS = 100
PARTITIONS_PER_TOPIC = 100
TOPICS_PER_REQUEST = 5
IDLE_S = 20.0
TRANSACTIONS = 50
TRANSACTION_MS = 100


def _produce_1k(system: System) -> Figures:
    seconds, cpu = load.produce(system, load.new_topic(system), KB_RECORDS, 1024)
    size = KB_RECORDS * 1024
    return {"mb_s": size / 1e6 / seconds, "cpu_gb": cpu / (size / 1e9)}


def _produce_100(system: System) -> Figures:
    seconds, cpu = load.produce(system, load.new_topic(system), SMALL_RECORDS, 100)
    return {"m_s": SMALL_RECORDS / 1e6 / seconds, "cpu_m": cpu / (SMALL_RECORDS / 1e6)}


def _consume_1k(system: System) -> Figures:
    topic = load.new_topic(system)
    load.produce(system, topic, KB_RECORDS, 1024)
    seconds, cpu = load.consume(system, topic, KB_RECORDS)
    size = KB_RECORDS * 1024
    return {"mb_s": size / 1e6 / seconds, "cpu_gb": cpu / (size / 1e9)}


def _one_at_a_time(system: System) -> Figures:
    acknowledged = sorted(load.acknowledge_one_by_one(system, load.new_topic(system), SINGLE_RECORDS))
    consumed = sorted(load.produced_to_consumed(system, load.new_topic(system), SINGLE_RECORDS))
    return {
        "consumed_p50": _percentile(consumed, 50),
        "consumed_p99": _percentile(consumed, 99),
        "acknowledged_p50": _percentile(acknowledged, 50),
        "acknowledged_p99": _percentile(acknowledged, 99),
    }


def _percentile(ascending: list[float], percent: int) -> float:
    return ascending[min(len(ascending) - 1, len(ascending) * percent // 100)]


def _single_record_requests(system: System) -> Figures:
    seconds, cpu = load.single_record_requests(system, load.new_topic(system), PRODUCERS, REQUESTS)
    return {"k_s": REQUESTS / 1e3 / seconds, "cpu_us": cpu / REQUESTS * 1e6}


def _transactions(system: System, size: int) -> Figures:
    sent, seconds, times = load.transactions(system, load.new_topic(system), TRANSACTIONS, TRANSACTION_MS, size)
    return {"mb_s": sent * size / 1e6 / seconds, "committed_p50": _percentile(sorted(times), 50)}


def _transactions_100(system: System) -> Figures:
    return _transactions(system, 100)


def _transactions_1k(system: System) -> Figures:
    return _transactions(system, 1024)


def _start(system: System) -> Figures:
    started = system.start()
    figures = {"start_s": started, "rss_start": system.rss_mb()}
    topic = load.new_topic(system)
    load.produce(system, topic, KB_RECORDS, 1024)
    load.consume(system, topic, KB_RECORDS)
    load.single_record_requests(system, load.new_topic(system), PRODUCERS, REQUESTS // 4)
    figures["rss_load"] = system.rss_mb()
    return figures


def _many_partitions(system: System) -> Figures:
    system.start()
    names = [f"many-{number:03}" for number in range(TOPICS)]
    began = time.perf_counter()
    for at in range(0, TOPICS, TOPICS_PER_REQUEST):
        load.create_topics(system, names[at : at + TOPICS_PER_REQUEST], PARTITIONS_PER_TOPIC)
    for name in names:
        load.first_acknowledgement(system, name)
    figures = {"create_s": time.perf_counter() - began}
    began = time.perf_counter()
    system.stop()
    figures["stop_s"] = time.perf_counter() - began
    began = time.perf_counter()
    system.start()
    load.first_acknowledgement(system, names[-1])
    figures["restart_s"] = time.perf_counter() - began
    for name in names:
        load.first_acknowledgement(system, name)
    time.sleep(5)
    cpu, began = system.cpu_s(), time.perf_counter()
    time.sleep(IDLE_S)
    figures["idle_percent"] = (system.cpu_s() - cpu) / (time.perf_counter() - began) * 100
    figures["rss"] = system.rss_mb()
    return figures


ROWS: tuple[Row, ...] = (
    Row(
        "produce-1k",
        "produce 1 KB records, one partition",
        (
            Metric("mb_s", "throughput", "MB/s", ratio_at_least=1.5),
            Metric("cpu_gb", "broker CPU", "s/GB", ratio_at_most=0.5),
        ),
        side_by_side(_produce_1k),
    ),
    Row(
        "produce-100b",
        "produce 100 B records, one partition",
        (
            Metric("m_s", "throughput", "M records/s", ratio_at_least=1.0),
            Metric("cpu_m", "broker CPU", "s/M records", ratio_at_most=0.5),
        ),
        side_by_side(_produce_100),
    ),
    Row(
        "consume-1k",
        "consume 1 KB records from the page cache",
        (
            Metric("mb_s", "throughput", "MB/s", ratio_at_least=1.1),
            Metric("cpu_gb", "broker CPU", "s/GB", ratio_at_most=0.5),
        ),
        side_by_side(_consume_1k),
    ),
    Row(
        "latency",
        "one record at a time",
        (
            Metric("consumed_p50", "produced to consumed, p50", "ms", ratio_at_most=0.6),
            Metric("consumed_p99", "produced to consumed, p99", "ms", ratio_at_most=0.3),
            Metric("acknowledged_p50", "acknowledged (`acks=all`), p50", "ms"),
            Metric("acknowledged_p99", "acknowledged (`acks=all`), p99", "ms"),
        ),
        side_by_side(_one_at_a_time),
    ),
    Row(
        "requests",
        "eight producers, one 100 B record a request, `acks=1`",
        (
            Metric("k_s", "requests", "k/s", ratio_at_least=1.5),
            Metric("cpu_us", "broker CPU", "µs/request", ratio_at_most=0.5),
        ),
        side_by_side(_single_record_requests),
    ),
    Row(
        "transactions-100b",
        "100 B records in transactions of 100 ms, one partition",
        (
            Metric("mb_s", "throughput", "MB/s", ratio_at_least=1.0),
            Metric("committed_p50", "begin to committed, p50", "ms", ratio_at_most=1.0),
        ),
        side_by_side(_transactions_100),
    ),
    Row(
        "transactions-1k",
        "1 KB records in transactions of 100 ms, one partition",
        (
            Metric("mb_s", "throughput", "MB/s", ratio_at_least=1.0),
            Metric("committed_p50", "begin to committed, p50", "ms", ratio_at_most=1.0),
        ),
        side_by_side(_transactions_1k),
    ),
    Row(
        "start",
        "start of a new node; 300 MB in and out, then 40,000 requests",
        (
            Metric("start_s", "start to serving", "s", at_most=0.8),
            Metric("rss_start", "memory after start", "MB"),
            Metric("rss_load", "memory after the load", "MB", at_most=120),
        ),
        one_by_one(_start),
    ),
    Row(
        "partitions",
        "10,000 partitions in 100 topics",
        (
            Metric("restart_s", "clean restart to an acknowledged produce", "s", at_most=6),
            Metric("rss", "memory", "MB", at_most=400),
            Metric("idle_percent", "idle CPU", "% of a core", at_most=3),
            Metric("create_s", "creating them", "s"),
            Metric("stop_s", "clean stop", "s"),
        ),
        one_by_one(_many_partitions, warm_up=False),
    ),
    Row(
        "protocol",
        "messages, one core, no broker",
        (
            Metric("metadata_encode_us", "Metadata response of 1,000 partitions: encode", "µs"),
            Metric("metadata_encode_to_kio", "the same, to kio's time", "", at_most=0.33),
            Metric("metadata_decode_us", "Metadata response of 1,000 partitions: decode", "µs"),
            Metric("produce_parse_us", "Produce request of one partition: parse", "µs", at_most=15),
            Metric("fetch_response_encode_us", "Fetch response of one partition: encode", "µs"),
        ),
        ours_alone(protocol.measure),
    ),
    Row(
        "records",
        "records of 8 + 100 B, one core, no broker",
        (
            Metric("decode_arrow", "decode to Arrow: key, value, offset, timestamp", "M/s", at_least=10),
            Metric("encode_arrow", "encode from Arrow: key, value, timestamp", "M/s", at_least=5),
            Metric("walk", "structural check", "M/s"),
        ),
        ours_alone(records.measure_row),
    ),
    Row(
        "produce-client",
        "producing 100 B records, four clients to one Mainstem broker",
        (
            Metric("calls", "our producer, one call a record", "M records/s"),
            Metric("calls_to_kafka_python", "the same, to `kafka-python`", "×", at_least=5),
            Metric("calls_to_aiokafka", "the same, to `aiokafka`", "×", at_least=5),
            Metric("calls_to_confluent", "the same, to `confluent-kafka`", "×", at_least=0.6),
            Metric("calls_cpu", "its CPU", "s/M records"),
            Metric("calls_cpu_to_confluent", "the same, to `confluent-kafka`", "×"),
            Metric("async_calls", "our producer on asyncio, one `await` a record", "M records/s"),
            Metric("async_calls_to_aiokafka", "the same, to `aiokafka`", "×", at_least=5),
            Metric("arrow", "our producer, from Arrow", "M records/s"),
            Metric("arrow_to_confluent", "the same, to `confluent-kafka`", "×", at_least=2.5),
            Metric("arrow_cpu", "its CPU", "s/M records"),
            Metric("arrow_cpu_to_confluent", "the same, to `confluent-kafka`", "×"),
        ),
        producing.measure,
    ),
    Row(
        "consume-client",
        "consuming 100 B records, four clients on one Mainstem broker",
        (
            Metric("objects", "our consumer, as objects", "M records/s"),
            Metric("objects_to_kafka_python", "the same, to `kafka-python`", "×", at_least=5),
            Metric("objects_to_aiokafka", "the same, to `aiokafka`", "×", at_least=5),
            Metric("objects_to_confluent", "the same, to `confluent-kafka`", "×", at_least=1.5),
            Metric("objects_cpu", "its CPU", "s/M records"),
            Metric("objects_cpu_to_confluent", "the same, to `confluent-kafka`", "×"),
            Metric("arrow", "our consumer, as Arrow", "M records/s"),
            Metric("arrow_to_confluent", "the same, to `confluent-kafka`'s `consume()`", "×", at_least=6),
            Metric("arrow_cpu", "its CPU", "s/M records"),
            Metric("arrow_cpu_to_confluent", "the same, to `confluent-kafka`", "×"),
        ),
        consuming.measure,
    ),
    *SPARK_ROWS,
)
