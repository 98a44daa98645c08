import json
from typing import Any

import pytest

from mainstem.client import serializers
from mainstem.client.errors import InvalidPartitionsError, InvalidTimestampError, SerializationError
from mainstem.client.serializers import check_place, serialize

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "amount", "type": "long"}],
}


def test_text_and_json_come_back_as_they_were() -> None:
    assert serializers.from_text(serializers.text("größer")) == "größer"
    assert serializers.json({"a": [1, None, "é"]}) == '{"a":[1,null,"é"]}'.encode()
    assert serializers.from_json(serializers.json({"a": [1, None]})) == {"a": [1, None]}


def test_avro_is_written_and_read_also_by_a_later_schema() -> None:
    order = {"customer": "7", "amount": 5}
    data = serializers.avro(SCHEMA)(order)
    assert serializers.from_avro(SCHEMA)(data) == order
    later = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "note", "type": "string", "default": "-"}]}
    assert serializers.from_avro(SCHEMA, later)(data) == {**order, "note": "-"}


def test_an_avro_schema_may_be_the_text_of_its_file() -> None:
    text = json.dumps(SCHEMA, indent=2)
    order = {"customer": "7", "amount": 5}
    assert serializers.avro(text)(order) == serializers.avro(SCHEMA)(order)
    assert serializers.from_avro(text, text)(serializers.avro(text)(order)) == order
    assert serializers.from_avro("string")(serializers.avro('"string"')("x")) == "x"


def test_protobuf_is_written_and_read() -> None:
    from google.protobuf.wrappers_pb2 import StringValue

    data = serializers.protobuf(StringValue(value="x"))
    assert serializers.from_protobuf(StringValue)(data).value == "x"


def test_what_a_serializer_raises_or_gives_wrongly_is_told_with_the_topic() -> None:
    with pytest.raises(SerializationError, match=r"the value serializer failed: .*\(topic orders\)"):
        serialize(serializers.text, 5, "value", "orders")
    with pytest.raises(SerializationError, match="the key serializer gave str; it gives bytes or None"):
        serialize(lambda value: "text", 5, "key", "orders")  # type: ignore[arg-type,return-value]
    assert serialize(lambda value: None, 5, "value", "orders") is None


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 63, 1.5])
def test_a_time_that_no_record_can_have_is_refused_before_it_is_in_a_batch(timestamp_ms: Any) -> None:
    """There it would keep the batch, and all behind it, from ever being sent."""
    with pytest.raises(InvalidTimestampError, match=str(timestamp_ms)):
        check_place("t", 0, timestamp_ms)
    check_place("t", 0, (1 << 63) - 1)


@pytest.mark.parametrize("partition", [-1, 1 << 31, 0.5, "0"])
def test_a_partition_that_no_topic_can_have_is_refused(partition: Any) -> None:
    with pytest.raises(InvalidPartitionsError, match=str(partition)):
        check_place("t", partition, None)
