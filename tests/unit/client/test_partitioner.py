import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from mainstem.client.partitioner import murmur2, partition_for_key, partitions_for_keys
from mainstem.protocol.columns import byte_column


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_hashes_are_those_of_kafkas_own_tests(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_hashes_are_those_of_another_client(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key)


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(1, 100))
def test_a_column_of_keys_is_hashed_as_each_of_them_is(keys: list[bytes | None], partitions: int) -> None:
    found = partitions_for_keys(byte_column(pa.array(keys, pa.binary())), partitions, 7)
    expected = [7 if key is None else partition_for_key(key, partitions) for key in keys]
    assert [int.from_bytes(found[at : at + 4], "little") for at in range(0, len(found), 4)] == expected
