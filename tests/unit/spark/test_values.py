"""Values as columns: Arrow's parser decides row by row what is well formed, whatever stands beside it."""

import json
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.spark import values as values_module
from mainstem.spark.json_sieve import Sieve
from mainstem.spark.values import _parse, decode_json, decode_string, readings

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def decoded(values: list[bytes | None]) -> tuple[list[dict[str, object]], list[int]]:
    columns, bad = decode_json(pa.array(values, pa.binary()), SCHEMA)
    return pa.table(columns, schema=SCHEMA).to_pylist(), bad


def test_fields_that_are_missing_are_null_and_others_are_ignored() -> None:
    rows, bad = decoded([b'{"id": 1, "name": "a", "more": [1]}', b'{"name": "b"}', b"{}", None])
    assert rows == [
        {"id": 1, "name": "a"},
        {"id": None, "name": "b"},
        {"id": None, "name": None},
        {"id": None, "name": None},
    ]
    assert bad == []


def test_bad_values_are_told_apart_from_good_ones_beside_them() -> None:
    values: list[bytes | None] = [
        b'{"id": 1}',
        b"not json",
        b'{"id": "x"}',
        b"",
        b"  ",
        b'{"id": 2}\n',
        b"[1]",
        b"\xff\xfe",
        b'{"id": 3}{"id": 4}',
        b'{"id": 5',
        b'{\n"id":\r\n6}',
        None,
        b'{"id": 7, "name": "a\nb"}',
    ]
    rows, bad = decoded(values)
    assert bad == [1, 2, 3, 4, 6, 7, 8, 9, 12]
    assert [row["id"] for row in rows] == [1, None, None, None, None, 2, None, None, None, None, 6, None, None]


def test_a_string_across_two_values_cannot_hide_a_value_of_two_objects() -> None:
    rows, bad = decoded([b'{"name": "}', b'{","id": 1}', b'{"id": 2}{"id": 3}', b'{"id": 4}'])
    assert bad == [0, 1, 2]
    assert rows[3]["id"] == 4


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=12),
            st.builds(lambda i, n: json.dumps({"id": i, "name": n}).encode(), st.integers(-9, 9), st.text(max_size=4)),
            st.sampled_from([b"{}", b"{", b"}", b"{}{}", b'{"name":"}', b'{","id":1}', b"{} ", b'{"id":1.5}']),
        ),
        max_size=20,
    )
)
def test_a_row_reads_the_same_alone_and_among_others(values: list[bytes | None]) -> None:
    rows, bad = decoded(values)
    assert len(rows) == len(values)
    for nth, value in enumerate(values):
        alone, alone_bad = decoded([value])
        assert (rows[nth], nth in bad) == (alone[0], bool(alone_bad)), value


def test_nested_and_timed_fields_are_read() -> None:
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())), ("of", pa.struct([("x", pa.float64())]))]
    )
    columns, bad = decode_json(
        pa.array([b'{"at": "2026-01-02T03:04:05Z", "tags": ["a", "b"], "of": {"x": 1}}'], pa.binary()), schema
    )
    assert bad == []
    row = pa.table(columns, schema=schema).to_pylist()[0]
    assert row["at"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert (row["tags"], row["of"]) == (["a", "b"], {"x": 1.0})


@pytest.mark.parametrize("value", [b"null", b"{} null {}", b'{"id": 1} null {"id": 2}', b"true", b"7", b'"{}"'])
def test_what_is_no_object_is_bad_and_ends_no_worker(value: bytes) -> None:
    """Arrow's parser does not survive a null where an object should be."""
    rows, bad = decoded([b'{"id": 1}', value, b'{"id": 2}'])
    assert bad == [1]
    assert [row["id"] for row in rows] == [1, None, 2]


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\u3000", "\f", "\v", "\x1f"])
def test_white_space_that_is_none_to_json_makes_a_value_bad(space: str) -> None:
    values = pa.array([each.encode() for each in (f'{space}{{"id": 1}}', f'{{"id": 2}}{space}', ' \r\n\t{"id": 3} ')])
    columns, bad = decode_json(values, pa.schema([("id", pa.int64())]))
    assert bad == [0, 1]
    assert columns[0].to_pylist() == [None, None, 3]


def test_dates_and_times_are_read_as_people_write_them() -> None:
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("days", pa.list_(pa.date32()))])
    columns, bad = decode_json(
        pa.array(
            [
                b'{"day": "2026-01-02", "days": ["2026-01-03", null]}',
                b'{"at": "2026-01-02T03:04:05.123456789+01:00"}',
                b'{"at": "9999-12-31T00:00:00Z"}',
                b'{"day": "2026-02-30"}',
                b'{"at": "yesterday"}',
                b'{"day": null}',
            ],
            pa.binary(),
        ),
        schema,
    )
    assert bad == [3, 4]
    rows = pa.table(columns, schema=schema).to_pylist()
    assert (rows[0]["day"], rows[0]["days"]) == (date(2026, 1, 2), [date(2026, 1, 3), None])
    assert rows[1]["at"].isoformat() == "2026-01-02T02:04:05.123456+00:00"
    assert rows[2]["at"].year == 9999


KINDS = {
    "n": pa.int32(),
    "x": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "at": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "l": pa.list_(pa.int64()),
    "o": pa.struct([("n", pa.int8()), ("day", pa.date32())]),
}
PIECES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-200, 200),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["2026-01-02", "2026-01-02Z", "2026-01-02T03", "2026-01-02 03:04:05.6789Z", "2026-13-01", "12:00"]),
)
PARTS = st.one_of(
    PIECES,
    st.lists(PIECES, max_size=3),
    st.dictionaries(st.sampled_from(["n", "day", "z"]), PIECES, max_size=3),
)
BROKEN = [b'{"n": }', b'{"x": Inf}', b'{"x": -Infinity}', b'{"n": 1, "n": "a"}', b'{"s": "\\ud800"}', b'{"s": "\x01"}']


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.dictionaries(st.sampled_from([*KINDS, "z"]), PARTS, max_size=3).map(lambda made: json.dumps(made).encode()),
        st.sampled_from(BROKEN),
    )
)
def test_what_the_sieve_keeps_back_arrow_would_not_have_taken(value: bytes) -> None:
    schema = pa.schema([*KINDS.items()])
    if Sieve(schema).is_bad(value.decode()):
        assert _parse(pa.array([value.decode()]), readings(schema)) is None


@pytest.mark.parametrize("broken", ['{"id": "x"}', '{"id": 1, "at": "never %d"}', "oops", '{"id": 1'])
def test_many_bad_values_are_not_parsed_one_by_one(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the parser costs as much as a hundred good values: with one in a hundred bad, a lake stood still."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    calls = 0

    def counted(*given: object) -> object:
        nonlocal calls
        calls += 1
        return _parse(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(values_module, "_parse", counted)
    values = [broken.replace("%d", str(nth)) if nth % 4 == 0 else '{"id": 7}' for nth in range(2000)]
    columns, bad = decode_json(pa.array(values).cast(pa.binary()), schema)
    assert bad == list(range(0, 2000, 4))
    assert columns[0].null_count == 500
    assert calls < 5


def test_text_that_is_not_utf8_gets_replacement_characters() -> None:
    assert decode_string(pa.array([b"a\xff", None, b"b"], pa.binary())).to_pylist() == ["a�", None, "b"]
