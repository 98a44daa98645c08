"""`mainstem up`, `broker` and `format`: runs one node in the foreground, or prepares its directories."""

import argparse
import asyncio
import logging
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from mainstem._version import VERSION
from mainstem.broker.app import Broker
from mainstem.broker.clock import SystemClock
from mainstem.broker.config import BrokerConfig, ConfigError, Endpoint
from mainstem.broker.endpoints import ANYWHERE
from mainstem.broker.format import format_directories
from mainstem.broker.logfmt import log_to_stderr
from mainstem.broker.partitions import StartInterruptedError
from mainstem.build_info import build_name
from mainstem.cli.arguments import DEFAULT_BOOTSTRAP
from mainstem.storage.errors import StorageError
from mainstem.storage.meta_properties import MetaProperties, read_meta_properties
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.properties import parse_properties

log = logging.getLogger(__name__)

_FILES_WANTED = 100_000
_FILES_KEPT_FREE = 1000
"""Descriptors that are neither a log's nor a connection's: what threads open, and connections that are just refused."""
_BLOCKED_MAX = 32
"""Threads that may wait for a disk: more than asyncio's own few, so that a slow one is not all that is waited for."""


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    if command == "up":
        parser.description = "Run one broker in the foreground."
        parser.add_argument(
            "--port", type=int, default=9092, help="where clients connect (default 9092; 0: a free one)"
        )
        parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)")
        parser.add_argument(
            "--data-dir",
            default="mainstem-data",
            help="where the data is (default ./mainstem-data); several are separated by commas",
        )
        parser.add_argument(
            "--format-new", action="store_true", help="use a new directory beside others that have data already"
        )
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting by Kafka's name")
        parser.set_defaults(run=up)
        return
    parser.add_argument("--config", required=True, metavar="FILE", help="Kafka's server.properties")
    parser.set_defaults(run=broker)
    if command == "format":
        parser.add_argument("--cluster-id", help="the cluster to belong to (default: a new one)")
        parser.add_argument(
            "--ignore-formatted", action="store_true", help="leave directories alone that are formatted"
        )
        parser.set_defaults(run=format)


def up(given: argparse.Namespace) -> int:
    """One broker on its own: the directory is formatted when it is new, and what a lone broker needs is set."""
    data_dirs = [str(Path(part.strip()).resolve()) for part in given.data_dir.split(",") if part.strip()]
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"{Endpoint('PLAINTEXT', given.host, given.port)},CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": ",".join(data_dirs),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    try:
        for pair in given.set:
            key, separator, value = pair.partition("=")
            if not separator:
                raise ConfigError(f"--set {pair}: write it as KEY=VALUE")
            settings[key] = value
        if given.host in ANYWHERE and "advertised.listeners" not in settings:
            raise ConfigError(
                f"--host {given.host} is every address of this machine; say by which one clients reach it, with "
                f"--set advertised.listeners=PLAINTEXT://ADDRESS:{given.port}"
            )
        config = BrokerConfig(settings)
        config = BrokerConfig(_with_formatted_node_id(settings, config.log_dirs))
        if not given.format_new:
            _check_none_is_missing(config.log_dirs)
        format_directories(
            PosixFileSystem(), random.SystemRandom(), config, SystemClock().wall_ms(), ignore_formatted=True
        )
    except (ValueError, OSError) as error:
        return _refuse(error)
    return _run(config, f"One broker on its own, data in {', '.join(config.log_dirs)}")


def broker(given: argparse.Namespace) -> int:
    try:
        config = _read_config(given.config)
    except (ValueError, OSError) as error:
        return _refuse(error)
    return _run(config, f"Node {config.node_id}, data in {', '.join(config.log_dirs)}")


def format(given: argparse.Namespace) -> int:
    try:
        config = _read_config(given.config)
        done = format_directories(
            PosixFileSystem(),
            random.SystemRandom(),
            config,
            SystemClock().wall_ms(),
            given.cluster_id,
            ignore_formatted=given.ignore_formatted,
        )
    except (ValueError, OSError) as error:
        return _refuse(error)
    for directory in done.directories:
        print(f"formatted {directory} for node {config.node_id} of cluster {done.cluster_id}")
    return 0


def _read_config(path: str) -> BrokerConfig:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # as Java reads properties
    return BrokerConfig(parse_properties(text))


def _check_none_is_missing(directories: Sequence[str]) -> None:
    """A disk that is not mounted looks like a new directory; on a new one, partitions would begin at offset 0 again."""
    new = [each for each in directories if _meta(each, "log.dirs") is None]
    if new and len(new) < len(directories):
        raise ConfigError(
            f"--data-dir has {', '.join(new)}, which is not formatted though others are: is its disk mounted? "
            f"--format-new has a directory used that really is new"
        )


def _with_formatted_node_id(settings: dict[str, str], directories: Sequence[str]) -> dict[str, str]:
    """A directory that exists, ours or Kafka's, says itself which node it belongs to."""
    for directory in directories:
        meta = _meta(directory, "log.dirs")
        if meta is not None:
            return settings | {"node.id": str(meta.node_id)}
    return settings


def _meta(directory: str, key: str) -> MetaProperties | None:
    try:
        return read_meta_properties(PosixFileSystem(), directory)
    except OSError as error:
        raise ConfigError(f"{key} has {directory}, which cannot be used: {error.strerror or error}") from None


def _run(config: BrokerConfig, what: str) -> int:
    log_to_stderr()
    for warning in config.warnings:
        log.warning(warning)
    try:
        meta = _meta(config.metadata_dir, "metadata.log.dir" if config.get("metadata.log.dir") else "log.dirs")
        if meta is None:
            raise ConfigError(f"{config.metadata_dir} is not formatted; prepare it with: mainstem format --config FILE")
        return uvloop.run(_serve(config, meta.cluster_id, what))
    except (ValueError, OSError, StorageError) as error:
        return _refuse(error)


def _allowed_files() -> int:
    """How many files this process may have open. The system allows more than a shell does, to those who ask."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > _FILES_WANTED:
        hard = _FILES_WANTED
    if soft == resource.RLIM_INFINITY:
        return hard
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = hard
        except (ValueError, OSError) as error:
            log.warning("no more than %d files may be open: %s", soft, error)
    return soft


async def _serve(config: BrokerConfig, cluster_id: str, what: str) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_BLOCKED_MAX, thread_name_prefix="disk"))
    stopping = loop.create_future()

    def stop(error: BaseException | None = None) -> None:
        if not stopping.done():
            stopping.set_result(error)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    files = _allowed_files()
    node = Broker(
        loop,
        PosixFileSystem(),
        SystemClock(),
        random.Random(os.urandom(16)),
        config,
        cluster_id,
        open_files_max=files - min(_FILES_KEPT_FREE, files // 4),
        on_fatal=stop,
    )
    starting = loop.create_task(node.start())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if stopping.done() and stopping.result() is None:
        node.interrupt()
    try:
        await starting
    except StartInterruptedError:
        log.info("stopped before all logs were open")
        await node.stop()
        return 0
    address = ",".join(one.address for one in node.advertised)
    _welcome(what, address)
    print(f"ready {address}", flush=True)
    error = await stopping
    if error is not None:
        log.critical("this node cannot go on: %s", error)
        return 1
    await node.stop()
    return 0


def _welcome(what: str, address: str) -> None:
    """What this is and what to type next, for people: programs read the one line of standard output."""
    command = "mainstem" if shutil.which("mainstem") else os.path.relpath(Path(sys.executable).with_name("mainstem"))
    elsewhere = "" if address == DEFAULT_BOOTSTRAP else f" --bootstrap {address}"
    lines = (
        f"Mainstem {VERSION} ({build_name()}): a streaming log that speaks Kafka's protocol.",
        f"{what}.",
        f"Any Kafka client can use it: bootstrap.servers={address}. Ctrl-C stops it.",
        "To try it, in another terminal:",
        f"  echo hello | {command} produce greetings --create{elsewhere}",
        f"  {command} consume greetings --from-beginning{elsewhere}",
    )
    print("\n".join(lines), file=sys.stderr, flush=True)


def _refuse(error: Exception) -> int:
    """A user's mistake, or the machine's: one sentence, no traceback."""
    print(f"mainstem: {error}", file=sys.stderr)
    return 2
