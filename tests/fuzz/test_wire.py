"""Whatever a peer sends, decoding ends soon, with a message or with RemoteError.

Mutations of valid messages, by a seed that a failure names: every message and every version in `make test`, many
more mutations of each in the campaign.
"""

import random
import time
from typing import Any

import pytest

from mainstem.protocol import fetch, produce
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.headers import read_request_header
from mainstem.protocol.messages.record_framing import GROUP_RECORDS, decode_metadata_record, encode_metadata_record
from mainstem.protocol.schema import Message
from tests.unit.protocol.message_strategies import all_messages, random_struct, versions_of

SMOKE_MUTATIONS = 30
CAMPAIGN_MUTATIONS = 3000
DECODE_SECONDS_MAX = 2.0
NASTY = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 6,
    b"\x00",
    b"\xff",
]


def mutate(data: bytes, rng: random.Random) -> bytes:
    mutated = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(mutated) + 1)
        match rng.randrange(5):
            case 0:
                del mutated[at:]
            case 1:
                nasty = rng.choice(NASTY)
                mutated[at : at + len(nasty)] = nasty
            case 2:
                mutated[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 3:
                del mutated[at : at + rng.randrange(1, 5)]
            case 4 if at < len(mutated):
                mutated[at] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def attempt(what: str, decode: Any, data: bytes) -> None:
    """Decodes, and judges what comes out."""
    start = time.monotonic()
    try:
        decode(data)
    except RemoteError:
        pass
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} for {data.hex()}") from error
    assert time.monotonic() - start < DECODE_SECONDS_MAX, f"{what}: slow for {data.hex()}"


def fuzz(cls: type[Message], mutations: int) -> None:
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        valid = random_struct(cls, version, rng).encode(version)
        for _ in range(mutations):
            attempt(f"{cls.__name__} v{version}", lambda data: cls.decode(data, version), mutate(valid, rng))  # noqa: B023


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_mutated_messages_raise_nothing_but_remote_error(cls: type[Message]) -> None:
    fuzz(cls, SMOKE_MUTATIONS)


@pytest.mark.campaign
@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_mutated_messages_campaign(cls: type[Message]) -> None:
    fuzz(cls, CAMPAIGN_MUTATIONS)


def header(flexible: bool) -> bytes:
    return bytes(5) if flexible else bytes(4)


HAND_WRITTEN: list[tuple[str, int, int, Any]] = [
    ("ProduceRequest", 3, 13, lambda data, version: produce.read_produce_request(data, 0, version)),
    (
        "ProduceResponse",
        3,
        13,
        lambda data, version: produce.read_produce_response(header(version >= 9) + data, version),
    ),
    ("FetchRequest", 4, 18, lambda data, version: fetch.read_fetch_request(data, 0, version)),
    ("FetchResponse", 4, 18, lambda data, version: fetch.read_fetch_response(header(version >= 12) + data, version)),
]


@pytest.mark.parametrize(("name", "first", "last", "read"), HAND_WRITTEN, ids=[row[0] for row in HAND_WRITTEN])
def test_hand_written_codecs_raise_nothing_but_remote_error(name: str, first: int, last: int, read: Any) -> None:
    rng = random.Random(name)
    cls = next(cls for cls in all_messages() if cls.__name__ == name)
    for version in range(first, last + 1):
        for _ in range(10):
            valid = random_struct(cls, version, rng).encode(version)
            for _ in range(SMOKE_MUTATIONS):
                attempt(f"{name} v{version}", lambda data: read(data, version), mutate(valid, rng))  # noqa: B023


def test_hand_written_and_declared_codecs_accept_the_same_bytes() -> None:
    """Two readers of the same bytes must not disagree on whether they are sound."""
    rng = random.Random("agree")
    classes = {cls.__name__: cls for cls in all_messages()}
    for name, first, last, read in HAND_WRITTEN:
        cls = classes[name]
        for version in range(first, last + 1):
            for _ in range(10 * SMOKE_MUTATIONS):
                data = mutate(random_struct(cls, version, rng).encode(version), rng)
                by_hand = accepts(lambda data: read(data, version), data)  # noqa: B023
                declared = accepts(lambda data: cls.decode(data, version), data)  # noqa: B023
                assert by_hand == declared, f"{name} v{version}: {data.hex()}"


def accepts(decode: Any, data: bytes) -> bool:
    try:
        decode(data)
    except RemoteError:
        return False
    return True


def test_random_frames_have_no_surprising_header() -> None:
    rng = random.Random("headers")
    for _ in range(3000):
        start = rng.randrange(95).to_bytes(2) + rng.randrange(20).to_bytes(2)
        attempt("request header", read_request_header, start + rng.randbytes(rng.randrange(30)))


def test_mutated_records_raise_nothing_but_remote_error() -> None:
    rng = random.Random("records")
    metadata = [cls for cls in all_messages() if cls.__module__.endswith("metadata_records")]
    for cls in metadata:
        valid = encode_metadata_record(random_struct(cls, cls.MAX_VERSION, rng), cls.MAX_VERSION)
        for _ in range(SMOKE_MUTATIONS):
            attempt(cls.__name__, decode_metadata_record, mutate(valid, rng))
    for cls in GROUP_RECORDS.keys.values():
        valid = GROUP_RECORDS.encode_key(random_struct(cls, 0, rng))
        for _ in range(SMOKE_MUTATIONS):
            attempt(cls.__name__, GROUP_RECORDS.decode_key, mutate(valid, rng))
