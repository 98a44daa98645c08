"""`mainstem doctor`: checks this machine, a file of settings and a running cluster, and says what to change.

A finding is `ok`, `advice` (it works, and could work better) or `problem` (it does not work, or will not for long). The
exit code is 1 where there is a problem. Each check is small and stands alone; one that cannot be made says why.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mainstem.cli.arguments import add_cluster
from mainstem.cli.failures import DONE, REFUSED
from mainstem.cli.output import Column, Output, name, prose
from mainstem.cli.values import in_words, several

if TYPE_CHECKING:
    from mainstem.client.admin import AsyncAdmin

OK: Final = "ok"
ADVICE: Final = "advice"
PROBLEM: Final = "problem"

_FILES_WANTED: Final = 100_000
_FILES_NEEDED: Final = 4096
_DISK_FREE_WANTED: Final = 0.15
_DISK_FREE_NEEDED: Final = 0.05
_MEMORY_WANTED: Final = 1 << 30
_ROUND_TRIPS: Final = 20
_ROUND_TRIP_SLOW_MS: Final = 20.0
_LONG_TRANSACTION_MS: Final = 15 * 60_000


class Finding(NamedTuple):
    area: str
    check: str
    result: str
    found: str
    advice: str = ""


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    parser.epilog = "example: mainstem doctor --config server.properties --bootstrap 127.0.0.1:9092"
    parser.add_argument("--config", type=Path, metavar="FILE", help="check this server.properties, too")
    parser.add_argument("--data-dir", type=Path, default=Path("mainstem-data"), help="where the data is or will be")
    parser.add_argument("--no-broker", action="store_true", help="leave the cluster alone")
    add_cluster(parser)
    parser.set_defaults(run=doctor)


def doctor(given: argparse.Namespace) -> int:
    out = Output(is_json=given.json, color=False if given.no_color else None)
    findings = [*machine(given.data_dir)]
    if given.config is not None:
        findings += config(given.config)
    if not given.no_broker:
        findings += cluster(given)
    if out.is_json:
        out.document([each._asdict() for each in findings])
    else:
        columns = [Column("area", "dim"), name("check"), Column("result"), prose("found"), prose("advice")]
        out.draw(columns, [each._asdict() for each in findings])
        problems = sum(each.result == PROBLEM for each in findings)
        advised = sum(each.result == ADVICE for each in findings)
        out.note(f"{several(len(findings), 'check')}: {several(problems, 'problem')}, {advised} advised")
    return REFUSED if any(each.result == PROBLEM for each in findings) else DONE


# This machine


def machine(data_dir: Path) -> Iterator[Finding]:
    import resource

    from mainstem.build_info import build_name

    yield Finding("machine", "python", OK, ".".join(map(str, sys.version_info[:3])))
    is_compiled = build_name() == "compiled"
    yield Finding(
        "machine",
        "build",
        OK if is_compiled else ADVICE,
        build_name(),
        "" if is_compiled else "install with a C compiler at hand: the compiled build is several times as fast",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _files(soft, hard)
    cores = len(os.sched_getaffinity(0))
    yield Finding("machine", "processors", OK if cores > 1 else ADVICE, str(cores), "" if cores > 1 else "give it two")
    yield from _memory()
    yield disk("machine", _existing(data_dir))


def _files(soft: int, hard: int) -> Finding:
    if soft >= _FILES_WANTED:
        return Finding("machine", "open files", OK, f"{soft:,}")
    result = ADVICE if soft >= _FILES_NEEDED else PROBLEM
    raising = (
        "ulimit -n" if hard >= _FILES_WANTED or hard < 0 else "the hard limit (limits.conf, LimitNOFILE=) and ulimit -n"
    )
    return Finding(
        "machine",
        "open files",
        result,
        f"{soft:,}",
        f"raise {raising} to {_FILES_WANTED:,}: segments and connections need one each",
    )


def _memory() -> Iterator[Finding]:
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) << 10
        swap = (int(fields["SwapTotal"].split()[0]) - int(fields["SwapFree"].split()[0])) << 10
    except (OSError, KeyError, ValueError):
        return
    result = OK if free >= _MEMORY_WANTED else ADVICE
    advice = "" if result == OK else "the page cache is what makes reading fast: leave it a gigabyte"
    yield Finding("machine", "memory", result, f"{in_words(free)} available", advice)
    if swap > 1 << 28:
        yield Finding(
            "machine",
            "swap",
            ADVICE,
            f"{in_words(swap)} in use",
            "a broker that is swapped out stalls: vm.swappiness=1",
        )


def disk(area: str, path: Path) -> Finding:
    usage = shutil.disk_usage(path)
    share = usage.free / usage.total if usage.total else 0.0
    found = f"{in_words(usage.free)} of {in_words(usage.total)} free at {path}"
    if not os.access(path, os.W_OK):
        return Finding(area, "disk", PROBLEM, f"{path} cannot be written to", "change its owner, or choose another")
    if share < _DISK_FREE_NEEDED:
        return Finding(area, "disk", PROBLEM, found, "make room: a full disk takes the directory offline")
    if share < _DISK_FREE_WANTED:
        return Finding(area, "disk", ADVICE, found, "make room, or shorten retention.ms or retention.bytes")
    return Finding(area, "disk", OK, found)


def _existing(path: Path) -> Path:
    path = path.resolve()
    while not path.exists():
        path = path.parent
    return path


# A file of settings


def config(path: Path) -> Iterator[Finding]:
    from mainstem.broker.config import BrokerConfig
    from mainstem.storage.checkpoint import MalformedFileError
    from mainstem.storage.meta_properties import read_meta_properties
    from mainstem.storage.posix import PosixFileSystem
    from mainstem.storage.properties import parse_properties

    try:
        found = BrokerConfig(parse_properties(path.read_text()))
    except (ValueError, OSError) as error:
        yield Finding("config", str(path), PROBLEM, str(error), "correct the line")
        return
    yield Finding("config", str(path), OK, f"node {found.node_id}")
    for warning in found.warnings:
        yield Finding("config", "setting", ADVICE, warning, "take it out, or see docs/differences.md")
    clusters: set[str] = set()
    for folder in dict.fromkeys([*found.log_dirs, found.metadata_dir]):
        try:
            meta = read_meta_properties(PosixFileSystem(), folder)
        except MalformedFileError as error:
            yield Finding(
                "config", "directory", PROBLEM, str(error), "restore meta.properties from a sibling directory"
            )
            continue
        if meta is None:
            yield Finding(
                "config", "directory", PROBLEM, f"{folder} is not formatted", f"mainstem format --config {path}"
            )
            continue
        clusters.add(meta.cluster_id)
        if meta.node_id != found.node_id:
            what = f"{folder} belongs to node {meta.node_id}, the file says {found.node_id}"
            yield Finding("config", "directory", PROBLEM, what, "correct node.id or log.dirs")
        else:
            yield disk("config", Path(folder))
    if len(clusters) > 1:
        what = f"directories of {len(clusters)} clusters"
        yield Finding("config", "directory", PROBLEM, what, "correct log.dirs: a node belongs to one cluster")


# A running cluster


def cluster(given: argparse.Namespace) -> list[Finding]:
    import uvloop

    from mainstem.cli.session import admin_options
    from mainstem.client.admin import AsyncAdmin
    from mainstem.client.errors import KafkaError

    findings: list[Finding] = []

    async def run() -> None:
        async with AsyncAdmin(**admin_options(given)) as admin:
            try:
                await admin.connect()
            except KafkaError as error:
                advice = "start it with `mainstem up`, or name another with --bootstrap"
                findings.append(Finding("cluster", "broker", PROBLEM, error.message, advice))
                return
            checks: list[Callable[[AsyncAdmin], Awaitable[list[Finding]]]] = [
                _brokers,
                _round_trip,
                _quorum,
                _partitions,
                _directories,
                _internal_topics,
                _transactions,
            ]
            for check in checks:
                try:
                    findings.extend(await check(admin))
                except KafkaError as error:
                    what = check.__name__.strip("_").replace("_", " ")
                    findings.append(Finding("cluster", what, ADVICE, f"not checked: {error}"))

    uvloop.run(run())
    return findings


async def _brokers(admin: AsyncAdmin) -> list[Finding]:
    found = await admin.describe_cluster(include_fenced=True)
    ids = ", ".join(str(each.node_id) for each in found.brokers)
    findings = [Finding("cluster", "brokers", OK, f"{ids} of cluster {found.cluster_id}")]
    if found.fenced:
        fenced = ", ".join(map(str, sorted(found.fenced)))
        findings.append(
            Finding("cluster", "brokers", PROBLEM, f"{fenced} not in service", "start them, or look why they do not")
        )
    if found.controller_id < 0:
        findings.append(Finding("cluster", "controller", PROBLEM, "there is none", "look at the controllers' logs"))
    return findings


async def _round_trip(admin: AsyncAdmin) -> list[Finding]:
    clock = time.perf_counter
    taken = []
    for _ in range(_ROUND_TRIPS):
        began = clock()
        await admin.describe_features()
        taken.append((clock() - began) * 1000)
    median = sorted(taken)[len(taken) // 2]
    is_slow = median > _ROUND_TRIP_SLOW_MS
    advice = "far away or busy: raise linger.ms and batch.size of producers" if is_slow else ""
    return [Finding("cluster", "round trip", ADVICE if is_slow else OK, f"{median:.2f} ms", advice)]


async def _quorum(admin: AsyncAdmin) -> list[Finding]:
    found = await admin.describe_quorum()
    behind = [each.node_id for each in found.voters if each.log_end_offset < found.high_watermark]
    what = f"{several(len(found.voters), 'voter')}, leader {found.leader_id}, epoch {found.leader_epoch}"
    if behind:
        advice = f"controller {', '.join(map(str, behind))} lags behind: look at its log"
        return [Finding("cluster", "quorum", ADVICE, what, advice)]
    if len(found.voters) == 2:
        return [Finding("cluster", "quorum", ADVICE, what, "two voters stand no loss: take one, or three")]
    return [Finding("cluster", "quorum", OK, what)]


async def _partitions(admin: AsyncAdmin) -> list[Finding]:
    topics = await admin.describe_topics()
    every = [(topic.name, each) for topic in topics.values() for each in topic.partitions]
    headless = [f"{name}:{each.partition}" for name, each in every if each.leader < 0]
    short = [f"{name}:{each.partition}" for name, each in every if len(each.isr) < len(each.replicas)]
    findings = [Finding("cluster", "partitions", OK, f"{len(every):,} of {several(len(topics), 'topic')}")]
    if headless:
        advice = "start the brokers that hold them, or elect anyone (unclean) and lose records"
        findings.append(Finding("cluster", "leaders", PROBLEM, f"{len(headless)} have none: {_some(headless)}", advice))
    if short:
        advice = "a replica is down or cannot keep up: look at that broker"
        findings.append(Finding("cluster", "replicas", PROBLEM, f"{len(short)} lack some: {_some(short)}", advice))
    return findings


async def _directories(admin: AsyncAdmin) -> list[Finding]:
    findings = []
    for broker, folders in (await admin.describe_log_dirs()).items():
        for folder in folders:
            where = f"broker {broker}, {folder.path}"
            if folder.error_code != 0:
                advice = "look at the disk, and start the broker anew"
                findings.append(Finding("cluster", "directory", PROBLEM, f"{where} is offline", advice))
            elif folder.total_bytes > 0:
                share = folder.usable_bytes / folder.total_bytes
                result = OK if share >= _DISK_FREE_WANTED else ADVICE if share >= _DISK_FREE_NEEDED else PROBLEM
                advice = "" if result == OK else "make room, or shorten retention"
                findings.append(Finding("cluster", "directory", result, f"{where}: {share:.0%} free", advice))
    return findings


async def _internal_topics(admin: AsyncAdmin) -> list[Finding]:
    brokers = len((await admin.describe_cluster()).brokers)
    topics = await admin.describe_topics()
    findings = []
    for each in topics.values():
        copies = min((len(one.replicas) for one in each.partitions), default=0)
        if each.is_internal and brokers >= 3 and copies < 3:
            what = f"{each.name} has {copies} replicas on {brokers} brokers"
            findings.append(Finding("cluster", "internal topic", ADVICE, what, "move it to three replicas"))
    return findings


async def _transactions(admin: AsyncAdmin) -> list[Finding]:
    from mainstem.client.errors import UnsupportedVersionError

    try:
        found = await admin.list_transactions(states=["Ongoing"])
        described = await admin.describe_transactions([each.transactional_id for each in found])
    except UnsupportedVersionError:
        return []
    now_ms = time.time_ns() // 1_000_000
    old = [
        each.transactional_id for each in described.values() if 0 <= each.start_time_ms < now_ms - _LONG_TRANSACTION_MS
    ]
    if not old:
        return [Finding("cluster", "transactions", OK, f"{len(found)} open")]
    advice = "read_committed consumers wait for them: mainstem transactions abort ID"
    return [
        Finding("cluster", "transactions", ADVICE, f"{len(old)} open for a quarter of an hour: {_some(old)}", advice)
    ]


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
