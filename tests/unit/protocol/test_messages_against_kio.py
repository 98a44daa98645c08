"""Every message agrees byte for byte with `kio`, which is made from Kafka's own schemas, in every version it knows.

kio has one class per version, with richer types than the wire has. Its quirks are handled here: error codes are an
enum, some milliseconds are timedeltas or datetimes (exact only near the present, so values are kept there), a zero
uuid is None, and names lose their unit. Fields are paired by their order, which both take from the schema.
"""

import dataclasses
import functools
import importlib
import io
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

from mainstem.protocol.fields import Field, fields_of
from mainstem.protocol.schema import Message, Struct
from tests.unit.protocol.message_strategies import KINDS, other_messages, rpc_messages, values, versions_of

SMOKE_EXAMPLES = 6
CAMPAIGN_EXAMPLES = 150
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KIO_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([code.value for code in ErrorCode]),
    "timedelta_i32": KINDS["int32"],
    "timedelta_i64": st.integers(-(2**40), 2**40),
    "datetime_i64": st.integers(0, 2**41),
}


def kio_class(cls: type[Message], version: int) -> type | None:
    """kio's class for a version of our message; None when it has none."""
    name = cls.__name__
    if cls.API_KEY >= 0:
        package = cls.__module__.rpartition(".")[2].partition("_")[2]
        module = "request" if name.endswith("Request") else "response"
    else:
        name = {"ControlRecordType": "ControlRecordTypeSchema"}.get(name, name)
        package = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
        module = "header" if name.endswith("Header") else "data"
    try:
        found = importlib.import_module(f"kio.schema.{package}.v{version}.{module}")
    except ModuleNotFoundError:
        return None
    return getattr(found, name)  # type: ignore[no-any-return]


PAIRS = [
    (cls, version, theirs)
    for cls in [*rpc_messages(), *other_messages()]
    for version in versions_of(cls)
    if (theirs := kio_class(cls, version)) is not None
]


def paired_fields(ours: type[Struct], version: int, theirs: type) -> list[tuple[Field, Any]]:
    present = [field for field in fields_of(ours) if field.in_version(version)]
    return list(zip(present, dataclasses.fields(theirs), strict=True))


@functools.cache
def instances(ours: type[Struct], version: int, theirs: type) -> st.SearchStrategy[Any]:
    """Our struct with values that kio's class can hold as well."""
    arguments = {}
    for field, their_field in paired_fields(ours, version, theirs):
        shape = classify_field(their_field)
        if isinstance(shape, EntityField | EntityTupleField):
            assert field.struct is not None, their_field
            item = instances(field.struct, version, shape.type_)
        else:
            assert field.kind is not None, their_field
            kafka_type = their_field.metadata["kafka_type"]
            item = KIO_VALUES.get(kafka_type, KINDS[field.kind.name])
            assert kafka_type in KIO_VALUES or kafka_type == field.kind.name
        assert their_field.metadata.get("tag") == (field.spec.tag if field.tagged_in(version) else None)
        arguments[field.name] = values(field, version, item)
    return st.builds(ours, **arguments)


def to_kio(value: Struct, version: int, theirs: type) -> Any:
    arguments = {}
    for field, their_field in paired_fields(type(value), version, theirs):
        content = getattr(value, field.name)
        shape = classify_field(their_field)
        if content is None:
            converted: Any = None
        elif isinstance(shape, EntityField):
            converted = to_kio(content, version, shape.type_)
        elif isinstance(shape, EntityTupleField):
            converted = tuple(to_kio(item, version, shape.type_) for item in content)
        elif field.array:
            converted = tuple(kio_value(their_field.metadata["kafka_type"], item) for item in content)
        else:
            converted = kio_value(their_field.metadata["kafka_type"], content)
        arguments[their_field.name] = converted
    return theirs(**arguments)


def kio_value(kafka_type: str, value: Any) -> Any:
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + timedelta(milliseconds=value)
        case "uuid":
            return None if value == bytes(16) else UUID(bytes=value)
    return value


def test_kio_knows_every_rpc_and_every_version_of_it() -> None:
    known = {(cls, version) for cls, version, _ in PAIRS}
    missing = [(cls.__name__, version) for cls in rpc_messages() for version in versions_of(cls)]
    assert [pair for pair in missing if pair not in {(cls.__name__, version) for cls, version in known}] == []


def check_agreement(cls: type[Message], version: int, theirs: type, examples: int) -> None:
    write: Any = entity_writer(theirs)
    read: Any = entity_reader(theirs)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(message=instances(cls, version, theirs))
    def agrees(message: Message) -> None:
        other = to_kio(message, version, theirs)
        buffer = io.BytesIO()
        write(buffer, other)
        expected = buffer.getvalue()
        assert message.encode(version) == expected
        decoded, end = cls.decode_from(expected, version)
        assert decoded == message
        assert end == len(expected)
        assert read(expected, 0)[0] == other

    agrees()


every_pair = pytest.mark.parametrize(
    ("cls", "version", "theirs"), PAIRS, ids=lambda value: getattr(value, "__name__", value)
)


@every_pair
def test_same_bytes_and_back(cls: type[Message], version: int, theirs: type) -> None:
    check_agreement(cls, version, theirs, SMOKE_EXAMPLES)


@pytest.mark.campaign
@every_pair
def test_same_bytes_and_back_campaign(cls: type[Message], version: int, theirs: type) -> None:
    check_agreement(cls, version, theirs, CAMPAIGN_EXAMPLES)
