"""Formatting: directories of a new cluster's first node, whole or not at all."""

from pathlib import Path
from random import Random

import pytest

from mainstem.broker.config import BrokerConfig
from mainstem.broker.format import format_directories
from mainstem.protocol.messages.record_framing import decode_metadata_record
from mainstem.storage.meta_properties import read_meta_properties
from mainstem.storage.metadata_snapshot import BOOTSTRAP, find_snapshots, read_snapshot
from mainstem.storage.posix import PosixFileSystem
from tests.support.metadata_node import node_config

FS = PosixFileSystem()


def format_(config: BrokerConfig, cluster_id: str | None = None, ignore: bool = False) -> str:
    return format_directories(FS, Random(), config, 1000, cluster_id, ignore_formatted=ignore).cluster_id


def test_every_directory_belongs_to_the_node_and_one_holds_the_metadata(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "one", tmp_path / "two"
    cluster_id = format_(node_config(f"{first},{second}"))
    metas = [read_meta_properties(FS, str(path)) for path in (first, second)]
    assert all(meta is not None and (meta.cluster_id, meta.node_id) == (cluster_id, 1) for meta in metas)
    assert len({meta.directory_id for meta in metas if meta is not None}) == 2
    for path in (first, second):
        features = [decode_metadata_record(value)[0] for value in read_snapshot(FS, f"{path}/{BOOTSTRAP}").values]
        assert "metadata.version" in repr(features[0])
        assert len(features) == 6
    folder = str(first / "__cluster_metadata-0")
    [only] = find_snapshots(FS, folder)
    voters = read_snapshot(FS, f"{folder}/{only.file_name}").voters
    assert voters is not None
    assert metas[0] is not None
    assert [voter.voter_directory_id for voter in voters.voters] == [metas[0].directory_id]
    assert voters.voters[0].endpoints[0].port == 29093
    assert not (second / "__cluster_metadata-0").exists()


def test_a_formatted_directory_is_left_alone(tmp_path: Path) -> None:
    config = node_config(str(tmp_path))
    cluster_id = format_(config)
    with pytest.raises(ValueError, match="formatted already, for node 1 of cluster"):
        format_(config)
    before = (tmp_path / "meta.properties").read_bytes()
    assert format_(config, ignore=True) == cluster_id
    assert (tmp_path / "meta.properties").read_bytes() == before
    with pytest.raises(ValueError, match="belongs to node 1 of cluster"):
        format_(config, cluster_id="another", ignore=True)


def test_a_new_directory_joins_the_cluster_of_the_others(tmp_path: Path) -> None:
    cluster_id = format_(node_config(str(tmp_path / "one")))
    assert format_(node_config(f"{tmp_path}/one,{tmp_path}/two"), ignore=True) == cluster_id
    meta = read_meta_properties(FS, str(tmp_path / "two"))
    assert meta is not None
    assert meta.cluster_id == cluster_id
