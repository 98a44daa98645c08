"""The makes of client that the tests run, how each gets what it needs, and what each lacks.

What a driver needs beyond this virtual environment is fetched once by the toolchain of its language into
`.kafka/clients/` of the clone (git-ignored), or under the folder that MAINSTEM_KAFKA_CACHE names. Where a toolchain is
missing, tests with that client are skipped and say so.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.compat.drivers.client import Make

HERE = Path(__file__).parent
CLONE = HERE.parents[2]

JAVA_VERSIONS = {"java-3.9": "3.9.2", "java-4.3": "4.3.1"}

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>mainstem.tests</groupId><artifactId>client</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{}</version></dependency>
<dependency><groupId>com.fasterxml.jackson.core</groupId><artifactId>jackson-databind</artifactId><version>2.17.2</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""

# Its life is seconds: the quickest start counts, not the best code.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def cache() -> Path:
    return Path(os.environ.get("MAINSTEM_KAFKA_CACHE") or CLONE / ".kafka") / "clients"


def make_in_cache(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """A folder that `build` has filled, made anew when a source changes; several processes may ask at once."""
    cache().mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in sources) + name.encode()).hexdigest()
    folder = cache() / name
    with open(cache() / f"{name}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        mark = folder / "complete"
        if not mark.exists() or mark.read_text() != digest:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for source in sources:
                shutil.copy(source, folder)
            build(folder)
            mark.write_text(digest)
    return folder


def run_toolchain(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: this client needs it")


def _python(name: str, module: str, **lacks: str) -> Make:
    command = (sys.executable, "-m", f"tests.compat.drivers.{module}")
    return Make(name, command, lacks, {"PYTHONPATH": str(CLONE)})


def _java(name: str) -> Make:
    _need("java", "javac", "mvn")
    version = JAVA_VERSIONS[name]

    def build(folder: Path) -> None:
        (folder / "pom.xml").write_text(_POM.format(version))
        jars = f"-DoutputDirectory={folder / 'jars'}"
        run_toolchain(["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy-dependencies", jars], folder)
        names = [one.name for one in sources]
        run_toolchain(["javac", "-nowarn", "-cp", f"{folder}/jars/*", "-d", str(folder), *names], folder)

    sources = [HERE / "java" / name for name in ("Driver.java", "Copier.java")]
    folder = make_in_cache(f"java-{version}", sources, build)
    return Make(name, ("java", *_JVM, "-cp", f"{folder}:{folder}/jars/*", "Driver"))


def streams_command() -> list[str]:
    """Kafka Streams' word count, of the newest version; what follows is for the program."""
    _need("java", "javac", "mvn")
    version = JAVA_VERSIONS["java-4.3"]

    def build(folder: Path) -> None:
        (folder / "pom.xml").write_text(_POM.format(version).replace("kafka-clients", "kafka-streams"))
        jars = f"-DoutputDirectory={folder / 'jars'}"
        run_toolchain(["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy-dependencies", jars], folder)
        run_toolchain(["javac", "-nowarn", "-cp", f"{folder}/jars/*", "-d", str(folder), "WordCount.java"], folder)

    folder = make_in_cache(f"streams-{version}", [HERE / "streams/WordCount.java"], build)
    return ["java", *_JVM, "-cp", f"{folder}:{folder}/jars/*", "WordCount"]


def _franz_go() -> Make:
    _need("go")
    sources = [HERE / "go" / name for name in ("go.mod", "go.sum", "main.go")]
    folder = make_in_cache("franz-go", sources, lambda at: run_toolchain(["go", "build", "-o", "driver", "."], at))
    lacks = {"txn_offset": "franz-go commits offsets in a transaction only for a group that it consumes"}
    return Make("franz-go", (str(folder / "driver"),), lacks)


def _kafkajs() -> Make:
    _need("node", "npm")
    sources = [HERE / "js" / name for name in ("package.json", "driver.js")]
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    folder = make_in_cache("kafkajs", sources, lambda at: run_toolchain(install, at))
    lacks = {
        "assignors": "kafkajs has one assignor of its own",
        "cooperative": "kafkajs rebalances eagerly",
        "static": "kafkajs has no static members",
        "null_headers": "kafkajs has no null headers",
    }
    return Make("kafkajs", ("node", str(folder / "driver.js")), lacks)


def _aiokafka() -> Make:
    return _python(
        "aiokafka",
        "aio",
        cooperative="aiokafka rebalances eagerly",
        delete_group="aiokafka cannot delete groups",
    )


MAKES: dict[str, Callable[[], Make]] = {
    "confluent-kafka": lambda: _python(
        "confluent-kafka", "confluent", sticky="librdkafka has no eager sticky assignor"
    ),
    "kafka-python": lambda: _python("kafka-python", "kafka_python", null_headers="kafka-python has no null headers"),
    "aiokafka": _aiokafka,
    "java-3.9": lambda: _java("java-3.9"),
    "java-4.3": lambda: _java("java-4.3"),
    "kafkajs": _kafkajs,
    "franz-go": _franz_go,
}


def find_make(name: str) -> Make:
    """The make of that name with all it needs; skips the test where its toolchain is missing."""
    return MAKES[name]()
