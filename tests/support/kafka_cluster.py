"""Three nodes of Apache Kafka: the first is the controller and a broker, the others are brokers. Each has a rack.

A broker can be killed and started again, on its old data and a new port; the first node stays.
"""

from pathlib import Path

from tests.support.kafka import Kafka, KafkaNode, free_port

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class _First(KafkaNode):
    def __init__(self, kafka: Kafka, home: Path, settings: dict[str, str]) -> None:
        super().__init__(kafka, home, settings)

    @property
    def controller(self) -> str:
        """Where the controller listens, from the settings that were written."""
        for line in self._config.read_text().splitlines():
            name, _, value = line.partition("=")
            if name == "controller.quorum.bootstrap.servers":
                return value
        raise AssertionError("it is not formatted")


class _Broker(KafkaNode):
    """A node that is a broker only."""

    def __init__(self, kafka: Kafka, home: Path, settings: dict[str, str], node_id: int, controller: str) -> None:
        super().__init__(kafka, home, settings, node_id)
        self._controller = controller

    def format(self) -> None:
        assert not self.is_running
        self.data.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        settings = {
            "process.roles": "broker",
            "node.id": str(self._node_id),
            "controller.quorum.bootstrap.servers": self._controller,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            **self._settings,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data / "meta.properties").exists():
            arguments = ["format", "--no-initial-controllers", "-t", self.cluster_id, "-c", str(self._config)]
            self._kafka.run_tool("kafka.tools.StorageTool", *arguments)
        self._is_prepared = True


class KafkaCluster:
    """`nodes[1]` to `nodes[3]`; broker n is in rack "rn"."""

    def __init__(self, kafka: Kafka, home: Path) -> None:
        common = {
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "5000",
            "replica.selector.class": SELECTOR,
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "auto.leader.rebalance.enable": "false",
            "controlled.shutdown.enable": "false",
        }
        first = _First(kafka, home / "1", {**common, "broker.rack": "r1"})
        first.format()
        self.nodes: dict[int, KafkaNode] = {1: first}
        for number in (2, 3):
            settings = {**common, "broker.rack": f"r{number}"}
            self.nodes[number] = _Broker(kafka, home / str(number), settings, number, first.controller)

    @property
    def bootstrap(self) -> str:
        """The first node: it is always there."""
        return self.nodes[1].bootstrap

    def __enter__(self) -> "KafkaCluster":
        try:
            for node in self.nodes.values():
                node.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
