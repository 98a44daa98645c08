"""Apache Kafka itself, for tests that compare with it: one node on free ports of 127.0.0.1, and Kafka's own tools.

The jars come from Maven once, into `.kafka/` of the clone (git-ignored), or into the folder that MAINSTEM_KAFKA_CACHE
names. Where Java 17 or Maven is missing, tests that ask for `kafka` are skipped and say so. Only processes that were
started here are ended, each by its own handle.
"""

import fcntl
import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

VERSION = "4.3.1"
OLDER_VERSION = "3.9.1"
"""The last line with ZooKeeper and old versions of APIs: what many clusters still run."""
JAVA_MIN = 17
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
TOOL_TIMEOUT_S = 120.0

_PORTS = (20_000, 32_768)
"""Where Linux begins with the ports that it gives to connections, this ends."""
_given_ports: set[int] = set()

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>mainstem.tests</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
</dependencies></project>
"""

_LOGGING = """<Configuration status="WARN"><Appenders><File name="F" fileName="{log}">
<PatternLayout pattern="%d %p %c %m%n"/></File></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="F"/></Root></Loggers></Configuration>
"""

# A node in a test lives for seconds: the quickest start counts, not the best code.
_JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


def missing() -> str | None:
    """Why Kafka cannot run here, as a sentence; None where it can."""
    if shutil.which("java") is None:
        return "Java is not installed: Apache Kafka needs it"
    if shutil.which("mvn") is None:
        return "Maven is not installed: it fetches Apache Kafka"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        first = said.splitlines()[0] if said else "java -version said nothing"
        return f"Apache Kafka {VERSION} needs Java {JAVA_MIN} or later; here: {first}"
    return None


def free_port() -> int:
    """One that nobody listens on, and that the system gives to no connection: a broker keeps it while it is down."""
    while True:
        port = random.SystemRandom().randrange(*_PORTS)
        if port in _given_ports:
            continue
        _given_ports.add(port)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class Kafka:
    """The jars, and what can be run with them."""

    def __init__(self, cache: Path | None = None, version: str = VERSION) -> None:
        self.version = version
        clone = Path(__file__).resolve().parents[2]
        self._cache = cache or Path(os.environ.get("MAINSTEM_KAFKA_CACHE") or clone / ".kafka")
        self.jars = self._cache / f"kafka-{version}"

    def fetch(self) -> None:
        """Makes sure the jars are there; several test processes may ask at the same time."""
        self._cache.mkdir(parents=True, exist_ok=True)
        with open(self._cache / "fetching", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if (self.jars / "complete").exists():
                return
            self.jars.mkdir(exist_ok=True)
            (self.jars / "pom.xml").write_text(_POM.format(version=self.version))
            command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(self.jars / "pom.xml")]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={self.jars}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
            if done.returncode:
                raise RuntimeError(f"Maven could not fetch Apache Kafka {self.version}: {done.stdout}{done.stderr}")
            (self.jars / "complete").touch()

    def command(
        self,
        main: str,
        *arguments: str,
        heap_mb: int = 256,
        options: Sequence[str] = (),
        jvm: Sequence[str] = _JVM,
    ) -> list[str]:
        return ["java", f"-Xmx{heap_mb}m", *jvm, *options, "-cp", f"{self.jars}/*", main, *arguments]

    def run_tool(self, main: str, *arguments: str) -> str:
        """What one of Kafka's tools prints; fails the test where the tool fails."""
        command = self.command(main, *arguments, options=["-Dlog4j2.level=ERROR"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
        assert done.returncode == 0, f"{main} {arguments} failed: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def dump_log_segments(self, *arguments: str) -> str:
        return self.run_tool("org.apache.kafka.tools.DumpLogSegments", *arguments)


class KafkaNode:
    """One node that is broker and controller, formatted as `kafka-storage format --standalone` does.

    Its data survives `stop` and `kill`; `start` opens it again, also when another broker wrote it.
    """

    cluster_id = "bWFpbnN0ZW0tdGVzdHMtMQ"

    def __init__(
        self,
        kafka: Kafka,
        home: Path,
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        jvm: Sequence[str] = _JVM,
        heap_mb: int = 512,
    ) -> None:
        self._kafka = kafka
        self._jvm = jvm
        self._heap_mb = heap_mb
        self._home = home
        self._settings = dict(settings or {})
        self._node_id = node_id
        self._process: subprocess.Popen[bytes] | None = None
        self._log_bytes = 0
        self._config = home / "server.properties"
        self._is_prepared = False
        self.data = home / "data"
        self.port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def format(self) -> None:
        """Writes the settings, with fresh ports, and formats the directory where it is new. `start` does it, too."""
        assert not self.is_running
        self._home.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(exist_ok=True)
        self.port, controller_port = free_port(), free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self._node_id),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }
        config = self._config
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data / "meta.properties").exists():
            arguments = ["format", "--standalone", "-t", self.cluster_id, "-c", str(config)]
            self._kafka.run_tool("kafka.tools.StorageTool", *arguments)
        self._is_prepared = True

    def start(self) -> None:
        if not self._is_prepared:
            self.format()
        self._is_prepared = False
        self._launch()
        self._wait_until_it_listens()

    def _launch(self) -> None:
        server_log = self._home / "server.log"
        self._log_bytes = server_log.stat().st_size if server_log.exists() else 0
        logging = self._home / "log4j2.xml"
        logging.write_text(_LOGGING.format(log=server_log))
        options = [f"-Dlog4j2.configurationFile={logging}"]
        with open(self._home / "out.log", "ab") as out:
            self._process = subprocess.Popen(
                self._kafka.command(
                    "kafka.Kafka", str(self._config), heap_mb=self._heap_mb, options=options, jvm=self._jvm
                ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.is_running:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        self.kill()
        log = self._home / "server.log"
        tail = log.read_text()[-4000:] if log.exists() else (self._home / "out.log").read_text()[-4000:]
        raise RuntimeError(f"Apache Kafka did not start: {tail}")

    def _wait_until_it_has_started(self) -> None:
        """It listens a little before it has started, and one that is told to stop then leaves no marker."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.is_running:
            with open(self._home / "server.log", "rb") as log:
                log.seek(self._log_bytes)
                if b"Kafka Server started" in log.read():
                    return
            time.sleep(0.05)

    def stop(self) -> None:
        """A clean stop: logs are closed, checkpoints and the marker written."""
        if self._process is not None:
            self._wait_until_it_has_started()
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            finally:
                self.kill()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def __enter__(self) -> "KafkaNode":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """Apache Kafka's jars, fetched if need be."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    found = Kafka()
    found.fetch()
    return found


@pytest.fixture(scope="session")
def kafka_node(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A running node for the whole session. Tests that stop it, or look at its files, make one of their own."""
    with KafkaNode(kafka, tmp_path_factory.mktemp("kafka")) as node:
        yield node
