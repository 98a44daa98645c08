"""Numbers in settings are read as Java reads them."""

import math

import pytest

from mainstem.core.java_numbers import is_whole_number, parse_double


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("+1.e0", 1.0),
        ("5e-1", 0.5),
        ("0.5f", 0.5),
        ("0.5D", 0.5),
        ("0x1p-1", 0.5),
        ("0X.8P0", 0.5),
        ("-0x1.8p1d", -3.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1e999", math.inf),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
    ],
)
def test_what_java_takes_for_a_double(text: str, value: float) -> None:
    assert parse_double(text) == value


def test_not_a_number_is_one() -> None:
    assert math.isnan(parse_double("NaN"))
    assert math.isnan(parse_double("-NaN"))


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "infinity", "1_000", "0.5fd", "0x1", "0x1.8", "0x.p1", ".", "e5", "1e", "٠.٥", "0.5 "]
)
def test_what_java_does_not_take_for_a_double(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        parse_double(text)


@pytest.mark.parametrize(("text", "is_one"), [("+5", True), ("-0", True), ("1_0", False), ("١", True), ("1.0", False)])
def test_whole_numbers(text: str, is_one: bool) -> None:
    assert is_whole_number(text) == is_one
