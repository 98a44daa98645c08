"""Mutated batches: whatever arrives, the answer is records or RemoteError."""

import random
from contextlib import suppress

import pytest
from crc32c import crc32c

from mainstem.core.log.compaction import Verdict
from mainstem.protocol.batch import ATTRIBUTES_AT, CRC_AT, BatchView, iterate_batches
from mainstem.protocol.builder import BatchBuilder, recompress
from mainstem.protocol.columns import decode_columns
from mainstem.protocol.compression import decompress
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.records import batch_body, iterate_records, walk_records
from mainstem.storage.batch_filter import BatchFilter
from mainstem.storage.cleaning_map import CleaningMap

LIMIT = 1 << 20


def seed_batch(rng: random.Random, codec: int) -> bytes:
    builder = BatchBuilder(
        codec, rng.randrange(1000), producer_id=rng.randrange(-1, 5), control=rng.random() < 0.2, base_sequence=0
    )
    for n in range(rng.randrange(1, 12)):
        headers = [(f"h{k}", rng.choice([None, b"", b"value"])) for k in range(rng.randrange(3))]
        key = rng.choice([None, b"", b"\x00\x00\x00\x01", b"key%d" % n])
        builder.append(rng.choice([0, n, -1, 2**63 - 1, -(2**63)]), key, rng.choice([None, b"v" * n]), headers)
    return builder.build()


def mutate(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        kind = rng.randrange(6)
        at = rng.randrange(len(out)) if out else 0
        if kind == 0 and out:
            out[at] = rng.randrange(256)
        elif kind == 1 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif kind == 3:
            del out[at : at + rng.randrange(1, 5)]
        elif kind == 4:
            out[at : at + 5] = rng.choice([b"\xff" * 5, b"\x80" * 5, b"\x7f" * 5, bytes(5)])
        else:
            del out[at:]
    return bytes(out)


def with_crc(data: bytes) -> bytes:
    """Made to match its CRC and length again, so that what is behind them is reached."""
    if len(data) < 61:
        return data
    sized = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    return sized[:CRC_AT] + crc32c(sized[ATTRIBUTES_AT:]).to_bytes(4, "big") + sized[ATTRIBUTES_AT:]


def read_everything(data: bytes) -> None:
    with suppress(RemoteError):
        decode_columns(data, check_crcs=False, limit=LIMIT).to_arrow(topic="t", partition=0).validate(full=True)
    for batch in iterate_batches(data, 0, len(data)):
        for action in (check, walk, iterate, clean, repack, marker):
            try:
                action(batch)
            except RemoteError:
                continue


def check(batch: BatchView) -> None:
    batch.check(len(batch.buffer))


def walk(batch: BatchView) -> None:
    body, start, end = batch_body(batch, LIMIT)
    walk_records(body, start, end, batch.record_count)


def iterate(batch: BatchView) -> None:
    for _ in iterate_records(batch, LIMIT):
        pass


def clean(batch: BatchView) -> None:
    keys = CleaningMap(1 << 12, 10)
    keys.allocate()
    keys.latest_offset = batch.base_offset + 2
    cleaner = BatchFilter(keys, 5, 5)
    cleaner.begin(batch, Verdict(drops_all=False, keeps_empty=True, is_spent_marker=batch.base_offset % 2 == 0))
    while cleaner.is_busy:
        cleaner.step(100)


def repack(batch: BatchView) -> None:
    recompress(batch, 4, limit=LIMIT)


def marker(batch: BatchView) -> None:
    parse_end_marker(batch)


@pytest.mark.parametrize("seed", range(8))
def test_a_mutated_batch_raises_nothing_but_remote_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(250):
        data = b"".join(seed_batch(rng, rng.randrange(5)) for _ in range(rng.randrange(1, 3)))
        data = mutate(rng, data)
        for candidate in (data, with_crc(data)):
            try:
                read_everything(candidate)
            except RemoteError:
                continue


@pytest.mark.parametrize("seed", range(4))
def test_mutated_records_behind_an_intact_header_raise_nothing_but_remote_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        data = seed_batch(rng, 0)
        body = mutate(rng, data[61:])
        read_everything(with_crc(data[:61] + body))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_mutated_compressed_data_raises_nothing_but_remote_error(codec: int) -> None:
    rng = random.Random(codec)
    for _ in range(1500):
        data = mutate(rng, seed_batch(rng, codec)[61:])
        try:
            assert len(decompress(codec, data, 5000)) <= 5000
        except RemoteError:
            continue
