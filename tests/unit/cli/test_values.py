import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

import pytest

from mainstem.cli import values


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("1.5s", 1500)],
)
def test_a_duration_is_read(text: str, ms: int) -> None:
    assert values.duration_ms(text) == ms


def test_a_time_is_a_date_milliseconds_or_so_long_ago() -> None:
    assert values.point_in_time("2026-01-31T12:00:00Z") == 1_769_860_800_000
    assert values.point_in_time("2026-01-31T12:00:00.250+00:00") == 1_769_860_800_250
    assert values.point_in_time("1769860800000") == 1_769_860_800_000
    now_ms = time.time_ns() // 1_000_000
    assert now_ms - 301_000 < values.point_in_time("5m") <= now_ms - 299_000
    assert values.point_in_time("now") >= now_ms


@pytest.mark.parametrize(("text", "number"), [("100", 100), ("64k", 65_536), ("10MB", 10 << 20), ("1GiB", 1 << 30)])
def test_a_size_is_in_powers_of_1024(text: str, number: int) -> None:
    assert values.size(text) == number


@pytest.mark.parametrize(("text", "number"), [("1000", 1000), ("10k", 10_000), ("1.5m", 1_500_000), ("1_000", 1000)])
def test_a_count_is_in_thousands(text: str, number: int) -> None:
    assert values.count(text) == number


def test_partitions_are_a_list_or_a_range() -> None:
    assert values.partitions("0") == [0]
    assert values.partitions("0,3,5-7") == [0, 3, 5, 6, 7]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (values.duration_ms, "5 minutes"),
        (values.duration_ms, ""),
        (values.point_in_time, "yesterday"),
        (values.size, "big"),
        (values.count, "-1"),
        (values.positive, "0"),
        (values.not_negative, "-1"),
        (values.key_value, "no-pair"),
        (values.key_value, "=value"),
        (values.partitions, "0,x"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is not|does not"):
        read(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")]
)
def test_a_size_in_words(number: int, text: str) -> None:
    assert values.in_words(number) == text


def test_one_thing_and_several() -> None:
    assert [values.several(number, "record") for number in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]


def test_a_time_in_words() -> None:
    assert values.time_in_words(1_769_860_800_250) == "2026-01-31T12:00:00.250Z"
    assert values.time_in_words(-1) == "-"
    assert values.time_in_words(0x7FFFFFFFFFFFFFFF).endswith("Z"), "the largest that a record can have"


@pytest.mark.parametrize(
    ("ms", "text"),
    [(5, "5 ms"), (1500, "1.5 s"), (200_000, "3 m 20 s"), (7_500_000, "2 h 5 m"), (200_000_000, "2 d 7 h")],
)
def test_a_duration_in_words(ms: int, text: str) -> None:
    assert values.duration_in_words(ms) == text
