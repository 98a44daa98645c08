"""Which topic a checkpoint is of."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark.pipelines.source_topic import TOPIC_FILE, check_topic

OLD, NEW = bytes(range(16)), bytes(range(1, 17))


def plan_a_batch(checkpoint: Path) -> None:
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").touch()


def test_a_topic_made_anew_is_told_and_so_is_the_way_on(tmp_path: Path) -> None:
    check_topic(tmp_path, "orders", OLD)
    plan_a_batch(tmp_path)
    check_topic(tmp_path, "orders", OLD)
    with pytest.raises(ValueError, match=f"orders is not the topic that {tmp_path} was read from"):
        check_topic(tmp_path, "orders", NEW)
    with pytest.raises(ValueError, match="made anew, or is another cluster's"):
        check_topic(tmp_path, "orders", NEW)  # being told once changes nothing
    (tmp_path / TOPIC_FILE).unlink()
    check_topic(tmp_path, "orders", NEW)


def test_a_checkpoint_is_of_one_topic(tmp_path: Path) -> None:
    check_topic(tmp_path, "ordres", OLD)
    check_topic(tmp_path, "orders", NEW)  # nothing was planned yet
    plan_a_batch(tmp_path)
    with pytest.raises(ValueError, match=f"checkpoint: {tmp_path} is of topic orders; give others one of its own"):
        check_topic(tmp_path, "others", OLD)


def test_brokers_without_topic_ids_are_taken_at_their_word(tmp_path: Path) -> None:
    check_topic(tmp_path, "orders", ZERO_UUID)
    plan_a_batch(tmp_path)
    check_topic(tmp_path, "orders", OLD)
    check_topic(tmp_path, "orders", ZERO_UUID)
