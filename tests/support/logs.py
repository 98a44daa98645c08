"""Logs and batches for tests: small to write down, and the same on every file system."""

from random import Random

from mainstem.core.log.append_result import AppendResult
from mainstem.core.log.config import LogConfig, parse_log_config
from mainstem.core.log.producers import Origin
from mainstem.core.log.verification import NO_GUARD
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.sim.disk import SimDisk
from mainstem.storage.fs import FileSystem
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.recovery import open_log

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/orders-0"


def new_disk(seed: int = 0) -> SimDisk:
    return SimDisk(Random(seed), lambda: NOW_MS)


def config(**settings: str | int) -> LogConfig:
    """`segment_bytes=1000` is allowed here, as `internal.segment.bytes`."""
    texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
    if "segment.bytes" in texts:
        texts["internal.segment.bytes"] = texts.pop("segment.bytes")
    return parse_log_config(texts)


def batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    timestamp: int = NOW_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch as a producer sends it; record n has timestamp `timestamp + n`."""
    builder = BatchBuilder(
        codec=codec,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        leader_epoch=leader_epoch,
    )
    for index, value in enumerate(values):
        builder.append(timestamp + index, key, value)
    return builder.build()


def marker(producer_id: int, epoch: int, commit: bool, coordinator_epoch: int = 0, timestamp: int = NOW_MS) -> bytes:
    return build_end_marker(EndMarker(producer_id, epoch, commit, coordinator_epoch, 0, timestamp))


def make_directory(fs: FileSystem, path: str) -> None:
    """With its parents, and durably."""
    parts = path.split("/")
    for count in range(2, len(parts) + 1):
        folder = "/".join(parts[:count])
        if not fs.exists(folder):
            fs.make_directory(folder)
            fs.sync_directory(folder.rpartition("/")[0] or "/")


def open_in(
    fs: FileSystem,
    settings: LogConfig | None = None,
    directory: str = DIRECTORY,
    clean: bool = False,
    log_start: int = 0,
    recovery_point: int = 0,
    high_watermark: int = 1 << 60,
    now_ms: int = NOW_MS,
    files: OpenFiles | None = None,
    gaps_until: int = 0,
) -> Log:
    make_directory(fs, directory)
    return open_log(
        OpenFiles(fs, 1000) if files is None else files,
        directory,
        settings or LogConfig(),
        now_ms,
        log_start=log_start,
        recovery_point=recovery_point,
        high_watermark=high_watermark,
        clean=clean,
        gaps_until=gaps_until,
    )


def append(
    log: Log,
    data: bytes,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
    origin: Origin = Origin.CLIENT,
    transaction_version: int = 0,
    guard: int = NO_GUARD,
) -> AppendResult:
    """Appends as the leader and, as a partition of one replica does, commits at once."""
    result = log.append_as_leader(data, 0, len(data), leader_epoch, now_ms, origin, transaction_version, guard)
    log.update_high_watermark(log.log_end)
    return result


def read_batches(log: Log, offset: int, upper_bound: int | None = None, max_bytes: int = 1 << 30) -> list[BatchView]:
    """The whole batches of one read."""
    found = log.read(offset, max_bytes, log.log_end if upper_bound is None else upper_bound)
    data = found.read()
    found.release()
    return list(iterate_batches(data, 0, len(data)))


def read_all(log: Log) -> list[BatchView]:
    batches: list[BatchView] = []
    offset = log.log_start
    while offset < log.log_end:
        some = read_batches(log, offset)
        if not some:
            break
        batches += some
        offset = some[-1].next_offset
    return batches


def file_contents(fs: FileSystem, directory: str = DIRECTORY) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for name in fs.list_directory(directory):
        file = fs.open(f"{directory}/{name}")
        contents[name] = file.read_at(0, file.size())
        file.close()
    return contents
