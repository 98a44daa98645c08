"""What `mainstem format` does: makes directories into those of a new cluster's first node.

The same as `kafka-storage format --standalone`, so that either system opens them: each directory gets its
`meta.properties` and `bootstrap.checkpoint`, and the one with the metadata log a first snapshot that names this node
as the only voter (`kraft.version` 1), so that voters can be added later.

`meta.properties` is written last: a directory without it counts as not formatted, and formatting it again is safe.

The features finalized are those of a fresh Kafka 4.3, also where nothing here serves them yet: what clients are told
about is decided where ApiVersions is answered.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.quorum import FOLDER, QuorumSettings
from mainstem.core.controller import versions
from mainstem.core.controller.features import DEFAULT_FEATURES
from mainstem.core.raft.quorum import KRAFT_VERSION, one_voter
from mainstem.protocol.messages.metadata_records import FeatureLevelRecord
from mainstem.protocol.uuids import METADATA_TOPIC_ID, random_uuid, uuid_to_text
from mainstem.storage.checkpoint import parent_of
from mainstem.storage.fs import FileSystem
from mainstem.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from mainstem.storage.metadata_snapshot import BOOTSTRAP, Snapshot, SnapshotId, encode_snapshot, write_snapshot
from mainstem.storage.partition_metadata import write_topic_id

_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Formatted:
    cluster_id: str
    directories: tuple[str, ...]
    """Those that were formatted now; the others were already, for the same node of the same cluster."""


def format_directories(
    fs: FileSystem,
    rng: Random,
    config: BrokerConfig,
    now_ms: int,
    cluster_id: str | None = None,
    *,
    ignore_formatted: bool = False,
    features: Mapping[str, int] = DEFAULT_FEATURES,
) -> Formatted:
    """Formats every directory of `config`. ValueError where one is formatted already, or for somebody else."""
    if cluster_id is not None and not _CLUSTER_ID.fullmatch(cluster_id):
        raise ValueError(f"the cluster id is '{cluster_id}'; it must be of letters, digits, - and _")
    paths = list(dict.fromkeys([*config.log_dirs, config.metadata_dir]))
    found = {}
    for path in paths:
        with _naming(config, path):
            if fs.exists(path):
                found[path] = read_meta_properties(fs, path)
    existing = {path: meta for path, meta in found.items() if meta is not None}
    wanted = cluster_id or next((meta.cluster_id for meta in existing.values()), uuid_to_text(random_uuid(rng)))
    for path, meta in existing.items():
        if not ignore_formatted:
            raise ValueError(f"{path} is formatted already, for node {meta.node_id} of cluster {meta.cluster_id}")
        if (meta.cluster_id, meta.node_id) != (wanted, config.node_id):
            raise ValueError(
                f"{path} belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
                f"not to node {config.node_id} of cluster {wanted}"
            )
    fresh = [path for path in paths if path not in existing]
    for path in fresh:
        with _naming(config, path):
            _format(fs, path, config, MetaProperties(wanted, config.node_id, random_uuid(rng)), now_ms, features)
    return Formatted(wanted, tuple(fresh))


@contextmanager
def _naming(config: BrokerConfig, path: str) -> Iterator[None]:
    """What the system refuses is told with the setting that asked for it."""
    try:
        yield
    except OSError as error:
        key = "log.dirs" if path in config.log_dirs else "metadata.log.dir"
        raise ValueError(f"{key} has {path}, which cannot be used: {error.strerror or error}") from error


def _format(
    fs: FileSystem, path: str, config: BrokerConfig, meta: MetaProperties, now_ms: int, features: Mapping[str, int]
) -> None:
    _make_directories(fs, path)
    levels = [FeatureLevelRecord(name=name, feature_level=level) for name, level in features.items() if level > 0]
    level = features.get(versions.METADATA_VERSION, versions.METADATA_VERSION_LATEST)
    bootstrap = Snapshot([versions.encode_record(record, level) for record in levels])
    write_snapshot(fs, f"{path}/{BOOTSTRAP}", encode_snapshot(bootstrap, 0, now_ms))
    if path == config.metadata_dir:
        settings = QuorumSettings.from_config(config, meta.directory_id)
        folder = f"{path}/{FOLDER}"
        if not fs.exists(folder):
            fs.make_directory(folder)
        write_topic_id(fs, folder, METADATA_TOPIC_ID)
        voters = one_voter(config.node_id, meta.directory_id, settings.endpoints)
        first = Snapshot((), now_ms, KRAFT_VERSION, voters)
        write_snapshot(fs, f"{folder}/{SnapshotId(0, 0).file_name}", encode_snapshot(first, 0, now_ms))
    write_meta_properties(fs, path, meta, now_ms)


def _make_directories(fs: FileSystem, path: str) -> None:
    missing = []
    while path and not fs.exists(path):
        missing.append(path)
        path = parent_of(path)
    for each in reversed(missing):
        fs.make_directory(each)
        fs.sync_directory(parent_of(each))
