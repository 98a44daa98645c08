"""Hypothesis strategies for declared messages: any value that a version can carry."""

import functools
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from mainstem.protocol.api import APIS
from mainstem.protocol.codec import Field, fields_of
from mainstem.protocol.messages import consumer_protocol, control, headers, principal, raft
from mainstem.protocol.messages.record_framing import GROUP_RECORDS, SHARE_RECORDS, TXN_RECORDS, metadata_record_types
from mainstem.protocol.schema import Message, Struct

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "uuid": st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)),
    # Long ones too: a compact length takes a second byte from 127 on.
    "string": st.one_of(st.text(max_size=6), st.just("long" * 40)),
    "bytes": st.one_of(st.binary(max_size=6), st.just(b"long" * 40)),
    "records": st.one_of(st.binary(max_size=6), st.just(b"long" * 40)),
}
NUMBERS_ARE_MANY = st.just(list(range(100, 230)))


def one_value(field: Field, version: int) -> st.SearchStrategy[Any]:
    """One element of `field`: itself, or an item where it is an array."""
    if field.struct is not None:
        return structs(field.struct, version)
    assert field.kind is not None
    return KINDS[field.kind.name]


def values(field: Field, version: int, item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """All of `field`, given a strategy for its elements."""
    strategy = item
    if field.array:
        strategy = st.lists(item, max_size=2)
        if field.kind is not None and field.kind.name in ("int32", "int64"):
            strategy = st.one_of(strategy, NUMBERS_ARE_MANY)
    if field.nullable_in(version):
        strategy = st.one_of(st.none(), strategy)
    if not field.spec.required:
        strategy = st.one_of(st.builds(field.spec.make_default), strategy)
    return strategy


@functools.cache
def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Instances of `cls` with every field that `version` has; the others keep their defaults."""
    present = [field for field in fields_of(cls) if field.in_version(version)]
    return st.builds(cls, **{field.name: values(field, version, one_value(field, version)) for field in present})


def versions_of(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


def rpc_messages() -> Iterator[type[Message]]:
    for api in APIS.values():
        yield api.request
        yield api.response


def record_messages() -> Iterator[type[Message]]:
    yield from metadata_record_types().values()
    for records in (GROUP_RECORDS, TXN_RECORDS, SHARE_RECORDS):
        yield from records.keys.values()
        yield from records.values.values()


def other_messages() -> Iterator[type[Message]]:
    for module in (consumer_protocol, control, headers, principal, raft):
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, Message) and item is not Message:
                yield item


def all_messages() -> list[type[Message]]:
    return [*rpc_messages(), *record_messages(), *other_messages()]
