"""Values as columns: Arrow's parser decides row by row what is well formed, whatever stands beside it."""

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.spark.values import decode_json, decode_string

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
    ]
    rows, bad = decoded(values)
    assert bad == [1, 2, 3, 4, 6, 7, 8, 9]
    assert [row["id"] for row in rows] == [1, None, None, None, None, 2, None, None, None, None, 6, None]


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


def test_text_that_is_not_utf8_gets_replacement_characters() -> None:
    assert decode_string(pa.array([b"a\xff", None, b"b"], pa.binary())).to_pylist() == ["a�", None, "b"]
