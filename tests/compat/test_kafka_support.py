"""Kafka really runs here: what the comparisons of this folder stand on."""

import json
from pathlib import Path

import pytest

from mainstem.storage.clean_shutdown import parse_marker
from mainstem.storage.meta_properties import read_meta_properties
from mainstem.storage.posix import PosixFileSystem
from tests.support.kafka import Kafka, KafkaNode

pytestmark = pytest.mark.kafka


def test_a_node_starts_stops_and_leaves_files_that_we_read(kafka: Kafka, tmp_path: Path) -> None:
    fs = PosixFileSystem()
    with KafkaNode(kafka, tmp_path) as node:
        with pytest.raises(BlockingIOError, match="another process"):
            fs.lock(str(node.data / ".lock"))
        node.stop()
        assert not node.is_running
        meta = read_meta_properties(fs, str(node.data))
        assert meta is not None
        assert (meta.cluster_id, meta.node_id) == (KafkaNode.cluster_id, 1)
        marker = (node.data / ".kafka_cleanshutdown").read_bytes()
        assert parse_marker(marker).clean
        assert parse_marker(marker).broker_epoch == json.loads(marker)["brokerEpoch"]
        node.start()
        assert not (node.data / ".kafka_cleanshutdown").exists()
        node.kill()
        assert not (node.data / ".kafka_cleanshutdown").exists()
