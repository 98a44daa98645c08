import pytest

from mainstem.protocol.java import coordinator_partition, split_list, string_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("Ж", 1046),
        ("😀", 1772899),
    ],
)
def test_a_string_hashes_as_in_java(text: str, value: int) -> None:
    assert string_hash(text) == value


def test_the_smallest_hash_belongs_to_partition_zero() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert coordinator_partition("hello", 50) == 99162322 % 50


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a,,", ["a"]),
        (",a", ["", "a"]),
        ("a,,b", ["a", "", "b"]),
        (",", []),
    ],
)
def test_a_list_is_split_as_in_java(text: str, parts: list[str]) -> None:
    assert split_list(text) == parts
