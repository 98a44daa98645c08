"""Values as columns: Arrow's parser decides row by row what is well formed, whatever stands beside it."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.spark import values as values_module
from mainstem.spark.json_sieve import Sieve
from mainstem.spark.values import _parse, decode_json, decode_string

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


def test_a_number_of_thousands_of_digits_that_nobody_asks_for_is_no_harm() -> None:
    long = b'{"id": 1, "name": "} x", "z": ' + b"1" * 5000 + b"}"
    rows, bad = decoded([long, b'{"id": "x"}', b'{"id": ' + b"1" * 5000 + b"}"])
    assert bad == [1, 2]
    assert rows[0] == {"id": 1, "name": "} x"}


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


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999"),
        ("1969-12-31T23:59:59.999999001Z", "1969-12-31T23:59:59.999999"),
        ("1900-01-01T00:00:00.123456789Z", "1900-01-01T00:00:00.123456"),
        ("1900-01-01T00:00:00.123456000Z", "1900-01-01T00:00:00.123456"),
        ("1677-09-22T00:12:43.145224193Z", "1677-09-22T00:12:43.145224"),
        ("1970-01-01T00:00:00.000000999Z", "1970-01-01T00:00:00"),
        ("2026-01-02T03:04:05.9999999Z", "2026-01-02T03:04:05.999999"),
    ],
)
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us")])
def test_digits_of_a_time_that_are_too_many_are_cut_off_before_1970_as_well(
    text: str, read: str, kind: pa.DataType
) -> None:
    found = alone_and_nested(f'"{text}"', kind)
    assert found == [datetime.fromisoformat(read).replace(tzinfo=UTC if kind.tz else None)] * 4
    assert alone_and_nested(f'"{text}"', pa.date32()) == [date.fromisoformat(read[:10])] * 4


def test_times_are_cut_off_beside_whatever_else_a_value_has() -> None:
    schema = pa.schema(
        [
            ("n", pa.int32()),
            ("of", pa.list_(pa.struct([("d", pa.decimal128(5, 2)), ("at", pa.timestamp("us")), ("s", pa.string())]))),
            ("tags", pa.list_(pa.string())),
        ]
    )
    values = [
        b'{"n": 1, "of": [{"d": 1.5, "at": "1969-12-31T23:59:59.9999999", "s": "a"}, null, {"s": "b"}]}',
        b'{"of": null, "tags": ["x", null]}',
        b"oops",
        b'{"of": [], "tags": []}',
        b'{"of": [{"at": "1960-01-01"}]}',
    ]
    columns, bad = decode_json(pa.array(values), schema)
    assert bad == [2]
    for column in columns:
        column.validate(full=True)
    late = {"d": Decimal("1.50"), "at": datetime(1969, 12, 31, 23, 59, 59, 999999), "s": "a"}
    b, first = {"d": None, "at": None, "s": "b"}, {"d": None, "at": datetime(1960, 1, 1), "s": None}
    assert columns[0].to_pylist() == [1, None, None, None, None]
    assert columns[1].to_pylist() == [[late, None, b], None, None, [], [first]]
    assert columns[2].to_pylist() == [None, ["x", None], None, [], None]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T23:00:00-05:00",
        "2026-01-01 00:30:00.123456789+01:00",
        "2026-01-01T19:00:00-0500",
        "2026-01-01T23-05",
        "2026-01-01T23:00\\u002d05:00",
        "2026-01-01T23:59:59.9999999Z",
        "2026-01-01",
    ],
)
def test_a_date_is_the_day_that_is_written(text: str) -> None:
    """In UTC it may be another one."""
    assert alone_and_nested(f'"{text}"', pa.date32()) == [date(2026, 1, 1)] * 4


def test_days_with_a_zone_change_nothing_beside_them() -> None:
    schema = pa.schema(
        [("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string()), ("d", pa.decimal128(5, 2))]
    )
    values = [
        b'{"day": "2026-01-01T23:00:00-05:00", "at": "2026-01-01T23:00:00-05:00", "d": 1.5}',
        b'{"day": "9999-12-31", "at": "9999-12-31T00:00:00Z", "s": "2026-01-01T23:00:00-05:00"}',
        b'{"day": "1960-02-30T23:00:00-05:00"}',
        b'{"day": "2026-01-01-05:00"}',
        b'{"day": "2026-01-01T23:00:00-05:00", "d": 1.234}',
        b'{"day": null, "at": "1969-12-31T23:59:59.9999999Z"}',
    ]
    (day, at, s, d), bad = decode_json(pa.array(values), schema)
    assert bad == [2, 3, 4]
    assert day.to_pylist() == [date(2026, 1, 1), date(9999, 12, 31), None, None, None, None]
    assert at[0].as_py() == datetime(2026, 1, 2, 4, tzinfo=UTC)
    assert at[5].as_py() == datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert s[1].as_py() == "2026-01-01T23:00:00-05:00"
    assert d[0].as_py() == Decimal("1.50")


def alone_and_nested(number: str, kind: pa.DataType) -> list[object]:
    """What a number reads as in a column, in a list, in a struct and in a list of structs, each beside a good row."""
    found: list[object] = []
    for text, of in (
        ("%s", kind),
        ("[%s, null]", pa.list_(kind)),
        ('{"of": %s}', pa.struct([("of", kind)])),
        ('[{"of": [%s]}, null]', pa.list_(pa.struct([("of", pa.list_(kind))]))),
    ):
        values = pa.array([b'{"x": null}', f'{{"s": "Inf", "x": {text % number}}}'.encode(), b"{}"])
        (column,), bad = decode_json(values, pa.schema([("x", of)]))
        assert column.type == of
        column.validate(full=True)
        assert column.is_null().to_pylist() == [True, bool(bad), True]
        read = column[1].as_py()
        while isinstance(read, list | dict):
            read = read["of"] if isinstance(read, dict) else read[0]
        assert bad == ([1] if read is None else [])
        found.append(read)
    return found


@pytest.mark.parametrize(
    ("kind", "number", "read"),
    [
        (pa.float32(), "3.5e38", None),
        (pa.float32(), "-3.5e38", None),
        (pa.float32(), "1" + "0" * 40, None),
        (pa.float32(), "3.40282356e38", 3.4028234663852886e38),
        (pa.float32(), "3.4028236e38", None),
        (pa.float32(), "Infinity", float("inf")),
        (pa.float32(), "-Infinity", float("-inf")),
        (pa.float64(), "3.5e38", 3.5e38),
        (pa.float64(), "1e400", None),
        (pa.float64(), "-1" + "0" * 400, None),
        (pa.float64(), "-Inf", float("-inf")),
        (pa.float64(), '"Infinity"', float("inf")),
        (pa.float32(), '"-Infinity"', float("-inf")),
        (pa.float64(), '"INF"', None),
        (pa.float64(), '"1.5"', None),
        (pa.int8(), "127", 127),
        (pa.int8(), "200", None),
        (pa.int8(), "-129", None),
        (pa.int16(), "-32768", -32768),
        (pa.int16(), "32768", None),
        (pa.int32(), "2147483647", 2147483647),
        (pa.int32(), "-2147483649", None),
        (pa.int64(), "-9223372036854775808", -(2**63)),
        (pa.int64(), "9223372036854775808", None),
        (pa.int64(), "1" + "0" * 40, None),
        (pa.int64(), "NaN", None),
        (pa.int64(), "1.0", None),
        (pa.decimal128(5, 2), "-999.990", Decimal("-999.99")),
        (pa.decimal128(5, 2), "1e2", Decimal(100)),
        (pa.decimal128(5, 2), "1." + "0" * 60, Decimal(1)),
        (pa.decimal128(5, 2), "1.234", None),
        (pa.decimal128(5, 2), "1000", None),
        (pa.decimal128(5, 2), "-1e3", None),
        (pa.decimal128(5, 2), "999.995", None),
        (pa.decimal128(5, 2), "NaN", None),
        (pa.decimal128(38, 18), "9" * 20, Decimal("9" * 20)),
        (pa.decimal128(38, 18), "1" + "0" * 20, None),
        (pa.decimal128(38, 18), "1" + "0" * 22, None),
        (pa.decimal128(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
        (pa.decimal128(38, 38), "1e37", None),
        (pa.decimal128(38, 38), "9" * 38, None),
        *((pa.decimal128(38, 18), f"1e{digits}", None) for digits in range(20, 160)),
        *((pa.decimal128(5, 0), f"1e-{digits}", None) for digits in range(1, 300)),
        (pa.decimal128(5, 0), "0e-192", None),
        (pa.decimal128(5, 0), "0." + "0" * 150 + "1", None),
        (pa.decimal128(5, 0), '"1\\u0065-192"', None),
        (pa.decimal128(5, 0), '"1e\\u002d192"', None),
    ],
)
def test_a_number_that_a_column_cannot_hold_is_bad_and_no_other_number(
    kind: pa.DataType, number: str, read: object
) -> None:
    """Arrow makes infinity of 3.5e38 in a float, and 131811359292784559562.136… of 1e22 in a decimal(38, 18)."""
    assert alone_and_nested(number, kind) == [read] * 4


@pytest.mark.parametrize("word", ["NaN", '"NaN"'])
def test_not_a_number_is_read_as_such(word: str) -> None:
    assert [str(each) for each in alone_and_nested(word, pa.float32())] == ["nan"] * 4


def test_words_for_numbers_are_text_where_the_schema_has_text_and_nothing_beside_them_changes() -> None:
    schema = pa.schema(
        [("x", pa.float64()), ("s", pa.string()), ("d", pa.decimal128(38, 37)), ("o", pa.struct([("x", pa.string())]))]
    )
    digits = "1." + "1" * 37
    values = [
        f'{{"x": "NaN", "s": "NaN", "d": {digits}, "o": {{"x": "Infinity"}}}}',
        '{"x": "-Infinity", "s": "\\"x\\": \\"NaN\\" \\u00e4 ä", "z": 1e300}',
        '{"x": "Infinity", "d": 15e-10}',
        '{"x": "Infinity", "x": 1}',
        '{"x": "NaN", "d": "NaN"}',
        '{"x": "NaN" "NaN"}',
    ]
    columns, bad = decode_json(pa.array([value.encode() for value in values]), schema)
    assert bad == [3, 4, 5]
    x, s, d, o = (column.to_pylist()[:3] for column in columns)
    assert [str(each) for each in x] == ["nan", "-inf", "inf"]
    assert s == ["NaN", '"x": "NaN" ä ä', None]
    assert (d[0], o[0]) == (Decimal(digits), {"x": "Infinity"})


def test_infinities_that_were_written_stay_beside_numbers_that_became_so() -> None:
    schema = pa.schema([("x", pa.float32()), ("s", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    values = [
        b'{"x": 1, "at": "9999-12-31T00:00:00Z"}',
        b'{"x": 3.5e38, "s": "Infinity"}',
        b'{"x": Infinity, "s": "\\"Inf\\\\"}',
        b"oops",
        b'{"x": -1e39, "y": Infinity}',
        b'{"x": 2, "at": "2026-01-02T03:04:05.123456789Z"}',
    ]
    (x, s, at), bad = decode_json(pa.array(values), schema)
    assert bad == [1, 3, 4]
    assert x.to_pylist() == [1.0, None, float("inf"), None, None, 2.0]
    assert s.to_pylist() == [None, None, '"Inf\\', None, None, None]
    assert at.is_valid().to_pylist() == [True, False, False, False, False, True]


KINDS = {
    "n": pa.int32(),
    "x": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "at": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "d": pa.decimal128(5, 2),
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
    st.sampled_from(["NaN", "Infinity", "-Infinity"]),
    st.decimals(-2000, 2000, places=3).map(str),
    st.sampled_from(
        ["1e2", "1.50e-1", ".5", "5.", "+1", "e2", "-", "", "0e999", "1e-99", "\u0661", "1_0", " 1", "NaN"]
    ),
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
def test_what_the_sieve_keeps_back_would_not_have_been_taken(value: bytes) -> None:
    schema = pa.schema([*KINDS.items()])
    if Sieve(schema).is_bad(value.decode()):
        _, bad = decode_json(pa.array([value]), schema)
        assert bad == [0]


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.decimal128(5, 0), pa.decimal128(38, 18), pa.decimal128(3, 3)])
@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.from_regex(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
        st.from_regex(r"-?[0-9]{1,5}(\.[0-9]{0,3})?", fullmatch=True).map(lambda text: f'"{text}"'),
    )
)
def test_the_sieve_and_the_parser_agree_on_decimals(kind: pa.DataType, number: str) -> None:
    schema = pa.schema([("x", kind)])
    text = f'{{"x": {number}}}'
    (read,), bad = decode_json(pa.array([text.encode()]), schema)
    if Sieve(schema).is_bad(text):
        assert bad == [0]
    if not bad:
        assert read[0].as_py() == Decimal(number.strip('"'))


@pytest.mark.parametrize(
    "broken", ['{"id": "x"}', '{"d": 1.125}', '{"d": "n/a"}', '{"id": 1, "at": "never %d"}', "oops", '{"id": 1']
)
def test_many_bad_values_are_not_parsed_one_by_one(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the parser costs as much as a hundred good values: with one in a hundred bad, a lake stood still."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(10, 2))])
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


def test_bytes_are_base64_wherever_they_stand() -> None:
    kind = pa.binary()
    schema = pa.schema(
        [("b", kind), ("some", pa.list_(kind)), ("of", pa.struct([("x", kind), ("all", pa.list_(pa.list_(kind)))]))]
    )
    values = [
        b'{"b": "aGVsbG8=", "some": ["", null, "/w=="], "of": {"x": "AAE=", "all": [["aA=="], null, []]}}',
        b"{}",
        b'{"b": "no base64"}',
        b'{"some": ["aA==", "a"]}',
        b'{"some": null, "of": null}',
        b'{"of": {"all": [[], ["aA==", "aA"]]}}',
        b'{"b": 5}',
        b'{"b": "aA==", "some": []}',
    ]
    columns, bad = decode_json(pa.array(values, pa.binary()), schema)
    rows = pa.table(columns, schema=schema).to_pylist()
    none = {"b": None, "some": None, "of": None}
    first = {"b": b"hello", "some": [b"", None, b"\xff"], "of": {"x": b"\0\1", "all": [[b"h"], None, []]}}
    assert bad == [2, 3, 5, 6]
    assert rows == [first, *[none] * 6, {"b": b"h", "some": [], "of": None}]
