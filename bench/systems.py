"""The two brokers that are compared, behind one face: Apache Kafka 4.3.1 and `mainstem up` from the build under test.

Each is a process of its own on free ports of 127.0.0.1 with its data in a folder of its own. What a broker costs is
read from /proc of that process. Only processes that were started here are ended, each by its own handle.
"""

import os
import select
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tests.support.kafka import Kafka, KafkaNode, free_port

import mainstem

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0

KAFKA_HEAP_MB = 1024
# What Kafka's own start script gives the JVM: measured as people run it, not as tests start it.
KAFKA_JVM = (
    f"-Xms{KAFKA_HEAP_MB}m",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class System(ABC):
    """One broker: started, loaded, asked what it used, stopped, started again on the same data."""

    name: str

    @abstractmethod
    def start(self) -> float:
        """Starts it; returns the seconds from the start of its process to serving."""

    @abstractmethod
    def stop(self) -> None:
        """The clean stop."""

    @abstractmethod
    def kill(self) -> None: ...

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @property
    @abstractmethod
    def pid(self) -> int: ...

    def cpu_s(self) -> float:
        """The processor time it has used, user and system, in seconds."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S

    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6

    def __enter__(self) -> "System":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class KafkaSystem(System):
    name = "kafka"

    def __init__(self, home: Path) -> None:
        kafka = Kafka()
        kafka.fetch()
        self._node = KafkaNode(kafka, home, jvm=KAFKA_JVM, heap_mb=KAFKA_HEAP_MB)

    def start(self) -> float:
        self._node.format()
        began = time.monotonic()
        self._node.start()
        return time.monotonic() - began

    def stop(self) -> None:
        self._node.stop()

    def kill(self) -> None:
        self._node.kill()

    @property
    def bootstrap(self) -> str:
        return self._node.bootstrap

    @property
    def pid(self) -> int:
        return self._node.pid


class MainstemSystem(System):
    name = "mainstem"

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._settings = {"offsets.topic.num.partitions": "1", **(settings or {})}
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        assert self._process is None
        self._home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "mainstem", "up", "--port", str(self._port)]
        command += ["--data-dir", str(self._home / "data")]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        environment = {**os.environ, "PYTHONPATH": str(Path(mainstem.__file__).parents[1])}
        began = time.monotonic()
        with open(self._home / "broker.log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=self._home
            )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = os.read(self._process.stdout.fileno(), 4096) if readable else b""
        if b"ready " not in line:
            self.kill()
            raise RuntimeError(f"mainstem did not start: {(self._home / 'broker.log').read_text()[-4000:]}")
        return time.monotonic() - began

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid
