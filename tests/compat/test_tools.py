"""Kafka's own command line tools work against our broker as they do against Kafka."""

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat.scenarios import new_name
from tests.support.kafka import TOOL_TIMEOUT_S, Kafka
from tests.support.node import Node

pytestmark = [pytest.mark.campaign, pytest.mark.kafka]

TOOLS = "org.apache.kafka.tools"


class Tools:
    """Kafka's tools, each pointed at our broker."""

    def __init__(self, kafka: Kafka, bootstrap: str) -> None:
        self._kafka = kafka
        self.bootstrap = bootstrap

    def run(self, main: str, *arguments: str, stdin: str = "") -> str:
        name = main if "." in main else f"{TOOLS}.{main}"
        command = self._kafka.command(
            name, "--bootstrap-server", self.bootstrap, *arguments, options=["-Dlog4j2.level=ERROR"]
        )
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
        assert done.returncode == 0, f"{main} {arguments} failed: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def create(self, what: str, *arguments: str) -> str:
        topic = new_name(what)
        said = self.run("TopicCommand", "--create", "--topic", topic, *arguments)
        assert f"Created topic {topic}." in said
        return topic

    def fill(self, topic: str, count: int) -> None:
        self.run("ConsoleProducer", "--topic", topic, stdin="".join(f"key {i}\tvalue {i}\n" for i in range(count)))


@pytest.fixture
def tools(kafka: Kafka, node: Node) -> Tools:
    return Tools(kafka, node.bootstrap)


def test_the_console_producer_and_consumer(tools: Tools) -> None:
    topic = tools.create("console")
    keyed = ("--reader-property", "parse.key=true", "--compression-codec", "zstd")
    tools.run("ConsoleProducer", "--topic", topic, *keyed, stdin="a\t1\nb\t2\nc\t3\n")
    said = tools.run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
    )
    assert re.findall(r"Offset:(\d)\t(\w)\t(\d)", said) == [("0", "a", "1"), ("1", "b", "2"), ("2", "c", "3")]


def test_the_topic_tool(tools: Tools) -> None:
    topic = tools.create("tool", "--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=100000")
    assert topic in tools.run("TopicCommand", "--list").split()
    described = tools.run("TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=100000", described)
    assert re.search(r"Partition: 2\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)
    tools.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tools.run("TopicCommand", "--describe", "--topic", topic)
    tools.run("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tools.run("TopicCommand", "--list").split()


def test_the_config_tool(tools: Tools) -> None:
    topic = tools.create("configs")
    main, at = "kafka.admin.ConfigCommand", ("--entity-type", "topics", "--entity-name", topic)
    assert "Completed updating config" in tools.run(main, *at, "--alter", "--add-config", "retention.ms=5000")
    assert "retention.ms=5000" in tools.run(main, *at, "--describe")
    assert "segment.bytes=1073741824" in tools.run(main, *at, "--describe", "--all")
    tools.run(main, *at, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=5000" not in tools.run(main, *at, "--describe")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    tools.run(main, *broker, "--alter", "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in tools.run(main, *broker, "--describe")
    tools.run(main, *broker, "--alter", "--delete-config", "log.cleaner.threads")


def test_the_group_tool(tools: Tools) -> None:
    topic, group = tools.create("groups"), new_name("group")
    tools.fill(topic, 10)
    read = ("--topic", topic, "--from-beginning", "--max-messages", "10", "--timeout-ms", "20000", "--group", group)
    tools.run(f"{TOOLS}.consumer.ConsoleConsumer", *read)
    main = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    assert group in tools.run(main, "--list").split()
    assert re.search(rf"{group}\s+{topic}\s+0\s+10\s+10\s+0", tools.run(main, "--describe", "--group", group))
    assert re.search(rf"{group}.*Empty\s+0", tools.run(main, "--describe", "--group", group, "--state"))
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "4", "--execute")
    assert re.search(rf"{topic}\s+0\s+4", tools.run(main, *reset))
    assert re.search(rf"{topic}\s+0\s+4\s+10\s+6", tools.run(main, "--describe", "--group", group))
    tools.run(main, "--delete-offsets", "--group", group, "--topic", topic)
    tools.run(main, "--delete", "--group", group)
    assert group not in tools.run(main, "--list").split()


def test_the_performance_tools(tools: Tools) -> None:
    topic = tools.create("performance")
    said = tools.run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
    )
    assert "20000 records sent" in said
    tools.run("ConsumerPerformance", "--topic", topic, "--num-records", "20000", "--timeout", "20000")
    spread = tools.run(
        "EndToEndLatency", "--topic", topic, "--num-records", "200", "--producer-acks", "all", "--record-size", "100"
    )
    assert "Percentiles" in spread


def test_the_offset_tools(tools: Tools, tmp_path: Path) -> None:
    topic = tools.create("offsets", "--partitions", "2")
    tools.fill(topic, 30)
    said = tools.run("GetOffsetShell", "--topic", topic)
    assert sum(int(end) for end in re.findall(rf"{topic}:\d:(\d+)", said)) == 30
    asked = tmp_path / "delete.json"
    asked.write_text(f'{{"partitions":[{{"topic":"{topic}","partition":0,"offset":0}}],"version":1}}')
    assert "low_watermark: 0" in tools.run("DeleteRecordsCommand", "--offset-json-file", str(asked))


def test_the_verifiable_producer_and_consumer(tools: Tools) -> None:
    topic, group = tools.create("verifiable"), new_name("group")
    said = tools.run("VerifiableProducer", "--topic", topic, "--max-messages", "100")
    assert '"sent":100,"acked":100' in said.replace(" ", "")
    said = tools.run("VerifiableConsumer", "--topic", topic, "--group-id", group, "--max-messages", "100")
    assert '"name":"shutdown_complete"' in said


def test_the_tools_that_look_at_the_cluster(tools: Tools) -> None:
    topic = tools.create("cluster")
    assert f'"partition":"{topic}-0"' in tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
    assert "ClusterId" in tools.run("MetadataQuorumCommand", "describe", "--status")
    assert "metadata.version" in tools.run("FeatureCommand", "describe")
    assert "Produce(0)" in tools.run("BrokerApiVersionsCommand")


def test_producer_performance_in_transactions(tools: Tools) -> None:
    topic = tools.create("performance")
    said = tools.run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", new_name("perf"), "--transaction-duration-ms", "100"),
    )
    assert "2000 records sent" in said
    counted = tools.run("GetOffsetShell", "--topic", topic, "--time", "-1")
    assert int(counted.strip().rpartition(":")[2]) > 2000, "records and markers"


def test_the_transactional_message_copier(kafka: Kafka, tools: Tools) -> None:
    source, target = tools.create("copied-from"), tools.create("copied-to")
    tools.fill(source, 500)
    command = kafka.command(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", tools.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", "500", "--consumer-group", new_name("copiers")),
        *("--transaction-size", "40", "--transactional-id", new_name("copier"), "--enable-random-aborts"),
        options=["-Dlog4j2.level=ERROR"],
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"remaining":0' in done.stdout.replace(" ", ""), done.stdout[-500:]
    said = tools.run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", target, "--from-beginning", "--max-messages", "500", "--timeout-ms", "20000"),
        *("--command-property", "isolation.level=read_committed"),
    )
    values = re.findall(r"key (\d+)", said)
    assert [int(one) for one in values] == list(range(500))


def test_the_transactions_tool(tools: Tools) -> None:
    topic, transactional_id = tools.create("transactions"), new_name("id")
    producer = Producer({"bootstrap.servers": tools.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(20)
    listed = tools.run("TransactionsCommand", "list")
    assert re.search(rf"{transactional_id}\s+\d+\s+\d+\s+Ongoing", listed), listed
    described = tools.run("TransactionsCommand", "describe", "--transactional-id", transactional_id)
    found = re.search(rf"{transactional_id}\s+(\d+)\s+(\d+)\s+Ongoing.*{topic}-0", described)
    assert found, described
    producers = tools.run("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(rf"{found[1]}\s+{found[2]}\s", producers), producers
    hanging = tools.run("TransactionsCommand", "find-hanging", "--topic", topic, "--partition", "0")
    assert transactional_id not in hanging
    start = re.search(rf"{found[1]}\s+{found[2]}\s.*\s(\d+)\s*$", producers, re.MULTILINE)
    assert start, producers
    tools.run(
        "TransactionsCommand",
        *("abort", "--topic", topic, "--partition", "0", "--start-offset", start[1]),
    )
    after = tools.run("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(rf"{found[1]}\s+{found[2]}\s.*\sNone\s*$", after, re.MULTILINE), after
    tools.run("TransactionsCommand", "forceTerminateTransaction", "--transactionalId", transactional_id)
