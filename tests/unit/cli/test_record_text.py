import json

import pytest

from mainstem.cli.failures import UserError
from mainstem.cli.record_text import from_json, template, to_json
from mainstem.client.types import ConsumerRecord

RECORD = ConsumerRecord("orders", 1, 42, 1_769_860_800_250, 0, b"k", b"\xff\x00", [("a", b"1"), ("b", None)])


def test_a_record_goes_to_json_and_back() -> None:
    text = json.dumps(to_json(RECORD)).encode()
    back = from_json(text, 1)
    assert (back.key, back.value, back.headers) == (RECORD.key, RECORD.value, RECORD.headers)
    assert (back.partition, back.timestamp_ms) == (1, 1_769_860_800_250)


def test_a_header_that_comes_twice_goes_to_json_and_back() -> None:
    headers = [("a", b"1"), ("b", b"\xff"), ("a", None), ("a", b"1")]
    record = ConsumerRecord("orders", 1, 42, 0, 0, None, b"v", headers)
    assert from_json(json.dumps(to_json(record)).encode(), 1).headers == headers


def test_other_json_is_written_as_its_text() -> None:
    assert from_json(b'{"value": {"b": 1, "a": [true, null]}}', 1).value == b'{"b":1,"a":[true,null]}'
    assert from_json(b'{"value": 7}', 1).value == b"7"
    assert from_json(b'{"key": null, "value": null}', 1).value is None


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "line 3 is not JSON"),
        (b"[1]", 'line 3 is not an object with "key" or "value"'),
        (b'{"valu": 1}', 'line 3 is not an object with "key" or "value"'),
        (b'{"value": "a", "headers": []}', None),
        (b'{"value": "a", "headers": [1]}', '"headers" is neither an object nor a list of pairs'),
        (b'{"value": "a", "headers": [[1, "x"]]}', '"headers" is neither an object nor a list of pairs'),
        (b'{"value": "a", "partition": "0"}', "'0' is not a whole number"),
        (b'{"value": {"base64": "?"}}', "line 3"),
        (b'{"value": "a", "headers": {"\\ud800": "x"}}', "surrogates not allowed"),
    ],
)
def test_a_line_that_is_no_record_is_named(line: bytes, sentence: str | None) -> None:
    if sentence is None:
        assert from_json(line, 3).headers == []
        return
    with pytest.raises(UserError, match="line 3") as caught:
        from_json(line, 3)
    assert sentence in str(caught.value)


def test_a_template_fills_in_fields() -> None:
    write = template("{topic}/{partition}:{offset}\\t{time} {timestamp} {key}={value} {headers}")
    assert write(RECORD) == "orders/1:42\t2026-01-31T12:00:00.250Z 1769860800250 k=\\xff\x00 a=1,b=null"


@pytest.mark.parametrize("text", ["{nix}", "{", "{0}", "{key.x}"])
def test_a_template_that_cannot_be_filled_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="the fields are"):
        template(text)
