"""Any value that a version of a message can carry: as Hypothesis strategies, and by a seed where many are wanted."""

import functools
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from mainstem.protocol.api import APIS
from mainstem.protocol.fields import Field, fields_of
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


def random_struct(cls: type[Struct], version: int, rng: random.Random) -> Any:
    """An instance of `cls` with every field that `version` has; much faster than a strategy, and never shrunk."""
    present = [field for field in fields_of(cls) if field.in_version(version)]
    return cls(**{field.name: _random_value(field, version, rng) for field in present})


def _random_value(field: Field, version: int, rng: random.Random) -> Any:
    if not field.spec.required and rng.random() < 0.2:
        return field.spec.make_default()
    if field.nullable_in(version) and rng.random() < 0.2:
        return None
    if field.array:
        # Now and then so many numbers that their length takes a second byte.
        many = field.kind is not None and field.kind.name == "int32" and rng.random() < 0.1
        return [_random_one(field, version, rng) for _ in range(130 if many else rng.choice([0, 1, 2, 3]))]
    return _random_one(field, version, rng)


def _random_one(field: Field, version: int, rng: random.Random) -> Any:
    if field.struct is not None:
        return random_struct(field.struct, version, rng)
    assert field.kind is not None
    match field.kind.name:
        case "string":
            return rng.choice(["", "orders", "grüße 😀", "é" * 70])
        case "uuid":
            return rng.choice([bytes(16), rng.randbytes(16)])
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 4, 150]))
        case "float64":
            return rng.random() * 1e9
        case "bool":
            return rng.random() < 0.5
    bits = 8 * field.kind.size
    number = rng.choice([0, 1, 5, rng.getrandbits(bits)])
    return number if field.kind.name.startswith("u") or number < 1 << (bits - 1) else number - (1 << bits)
