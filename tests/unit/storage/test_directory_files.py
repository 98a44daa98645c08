"""meta.properties, partition.metadata, the clean-shutdown marker: as Kafka writes them, and nothing else accepted."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.protocol.uuids import METADATA_TOPIC_ID, random_uuid, uuid_from_text, uuid_to_text
from mainstem.sim.changes import every_survival
from mainstem.sim.disk import SimDisk
from mainstem.storage.checkpoint import MalformedFileError
from mainstem.storage.clean_shutdown import UNCLEAN, PreviousStop, parse_marker, take_marker, write_marker
from mainstem.storage.meta_properties import (
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
    read_meta_properties,
    write_meta_properties,
)
from mainstem.storage.partition_metadata import format_topic_id, parse_topic_id, read_topic_id, write_topic_id
from mainstem.storage.properties import parse_properties

KAFKA_META = b"""#
#Sun Nov 15 22:40:25 UTC 2026
node.id=1
directory.id=fcI4AIPfTNSCAmRwjwWQkA
version=1
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
"""


def new_disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_directories("/d")
    return disk


def test_ids_have_one_spelling() -> None:
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ") == METADATA_TOPIC_ID
    for text in ("", "AAAA", "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAAAAAAAAAAAAAAAAAAAR", "AAAAAAAAAAAAAAAAAAAA+Q", "é" * 22):
        with pytest.raises(ValueError, match="is not an id"):
            uuid_from_text(text)


@given(st.binary(min_size=16, max_size=16))
def test_ids_round_trip(value: bytes) -> None:
    assert uuid_from_text(uuid_to_text(value)) == value


def test_random_ids_are_never_taken_for_an_option() -> None:
    rng = Random(1)
    ids = [random_uuid(rng) for _ in range(2000)]
    assert len(set(ids)) == 2000
    assert not [each for each in ids if uuid_to_text(each).startswith("-")]


def test_meta_properties_are_written_as_kafka_does() -> None:
    meta = parse_meta_properties("m", KAFKA_META)
    assert meta == MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 1, uuid_from_text("fcI4AIPfTNSCAmRwjwWQkA"))
    assert format_meta_properties(meta, now_ms=1_794_782_425_000) == KAFKA_META


@given(st.text(min_size=1).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)))
def test_any_cluster_id_survives(cluster_id: str) -> None:
    if any(letter > "\uffff" for letter in cluster_id):
        return
    meta = MetaProperties(cluster_id, 2**31 - 1, bytes(range(16)))
    assert parse_meta_properties("m", format_meta_properties(meta, 0)) == meta


def test_java_properties_are_read_with_all_their_liberties() -> None:
    text = "# no\n! no\n\n a = 1\nb:2\nc 3\n  d\\=e  =  x\\ty\\u00e9 \r\nlong=on\\\n   e\\\n   two\n"
    text += "empty\nslash=\\\\\nk=a=b"
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d=e": "x\tyé ",
        "long": "onetwo",
        "empty": "",
        "slash": "\\",
        "k": "a=b",
    }


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b"version=1", b"version=0", "version '0'"),
        (b"version=1\n", b"", "version is missing"),
        (b"node.id=1", b"node.id=-1", "node.id '-1'"),
        (b"node.id=1\n", b"", "node.id is missing"),
        (b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg", b"cluster.id=", "cluster.id is empty"),
        (b"directory.id=fcI4", b"directory.id=", "directory.id"),
        (b"directory.id=fcI4AIPfTNSCAmRwjwWQkA\n", b"", "directory.id is missing"),
    ],
)
def test_meta_properties_that_are_not_whole_are_refused(old: bytes, new: bytes, complaint: str) -> None:
    with pytest.raises(MalformedFileError, match=complaint):
        parse_meta_properties("m", KAFKA_META.replace(old, new))


def test_an_unformatted_directory_has_no_meta_properties() -> None:
    disk = new_disk()
    assert read_meta_properties(disk, "/d") is None
    meta = MetaProperties("c", 3, bytes(range(16)))
    write_meta_properties(disk, "/d", meta, now_ms=0)
    disk.power_loss_keeping({})
    assert read_meta_properties(disk, "/d") == meta


def test_partition_metadata_is_written_as_kafka_does() -> None:
    disk = new_disk()
    assert read_topic_id(disk, "/d") is None
    topic_id = uuid_from_text("e29fXZsIQDi4JrgMernalw")
    assert format_topic_id(topic_id) == b"version: 0\ntopic_id: e29fXZsIQDi4JrgMernalw"
    write_topic_id(disk, "/d", topic_id)
    disk.power_loss_keeping({})
    assert read_topic_id(disk, "/d") == topic_id


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: e29fXZsIQDi4JrgMernalw",
        b"version: 0\ntopic_id: e29f",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id e29fXZsIQDi4JrgMernalw",
        b"topic_id: e29fXZsIQDi4JrgMernalw\nversion: 0",
        bytes(44),
        b"\xff\xfe",
    ],
)
def test_other_partition_metadata_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedFileError):
        parse_topic_id("p", content)


def test_the_marker_is_kafkas_and_is_taken_once() -> None:
    disk = new_disk()
    assert take_marker(disk, "/d") == UNCLEAN
    write_marker(disk, "/d", broker_epoch=13)
    file = disk.open("/d/.kafka_cleanshutdown")
    assert file.read_at(0, 100) == b'{"version":0,"brokerEpoch":13}'
    disk.power_loss_keeping({})
    assert take_marker(disk, "/d") == PreviousStop(clean=True, broker_epoch=13)
    assert take_marker(disk, "/d") == UNCLEAN


def test_after_the_marker_was_taken_no_power_loss_brings_it_back() -> None:
    disk = new_disk()
    write_marker(disk, "/d", broker_epoch=13)
    take_marker(disk, "/d")
    for kept in every_survival(disk.unsynced()):
        image = disk.fork()
        image.power_loss_keeping(kept)
        assert take_marker(image, "/d") == UNCLEAN


def test_no_power_loss_brings_back_a_marker_that_a_start_had_removed_when_it_was_killed() -> None:
    """Seed 200012556: the next start found none, and left it to chance that the folder is synced."""
    disk = new_disk()
    write_marker(disk, "/d", broker_epoch=13)
    disk.remove("/d/.kafka_cleanshutdown")
    disk.kill()
    assert take_marker(disk, "/d") == UNCLEAN
    disk.power_loss_keeping({})
    assert take_marker(disk, "/d") == UNCLEAN


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"version":1,"brokerEpoch":13}', b'{"version":0}', bytes(30)])
def test_a_marker_that_cannot_be_read_proves_nothing(data: bytes) -> None:
    assert parse_marker(data) == UNCLEAN


def test_the_empty_marker_of_older_releases_is_clean() -> None:
    assert parse_marker(b"") == PreviousStop(clean=True, broker_epoch=-1)
