"""Every codec reads what every client writes, and no data expands past its limit."""

import errno
import gzip
import mmap
import os
import random
import struct
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.protocol.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    expansion_bound,
)
from mainstem.protocol.errors import ErrorCode, RemoteError

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
NAMED = pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES[1:])
MIB = 1 << 20


def sample(size: int) -> bytes:
    words = [random.Random(n).randbytes(7) for n in range(50)]
    rng = random.Random(1)
    return b"".join(rng.choice(words) for _ in range(size // 7 + 1))[:size]


@pytest.mark.parametrize("codec", [NONE, *CODECS], ids=CODEC_NAMES)
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 64 * 1024, 64 * 1024 + 1, 300_000])
def test_data_of_any_size_comes_back(codec: int, size: int) -> None:
    for data in (sample(size), random.Random(2).randbytes(size)):
        packed = compress(codec, data)
        assert decompress(codec, packed, size) == data
        if size:
            with pytest.raises(RemoteError) as caught:
                decompress(codec, packed, size - 1)
            assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@given(st.binary(max_size=2000), st.sampled_from(CODECS))
@settings(max_examples=100, deadline=None)
def test_any_bytes_come_back(data: bytes, codec: int) -> None:
    assert decompress(codec, compress(codec, data), 2000) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, [-1, 1, 9]), (LZ4, [1, 9, 12, 17]), (ZSTD, [-100, 1, 3, 22])], ids=str
)
def test_every_level_that_kafka_allows_works(codec: int, levels: list[int]) -> None:
    data = sample(50_000)
    for level in levels:
        assert decompress(codec, compress(codec, data, level), len(data)) == data
    assert len(compress(codec, data, levels[-1])) <= len(compress(codec, data, levels[0]))


@pytest.mark.parametrize(("codec", "low", "high"), [(GZIP, 1, 9), (LZ4, 1, 17), (LZ4, 3, 12), (ZSTD, 1, 19)])
def test_a_higher_level_packs_closer(codec: int, low: int, high: int) -> None:
    rng = random.Random(1)
    text = b"".join(b'{"user": %d, "amount": %d}' % (rng.randrange(10**6), rng.randrange(1000)) for _ in range(4000))
    assert len(compress(codec, text, high)) < 0.95 * len(compress(codec, text, low))
    for level in (low, high):
        assert decompress(codec, compress(codec, text, level), len(text)) == text


def test_lz4_is_written_as_java_can_read_it() -> None:
    packed = compress(LZ4, sample(200_000))
    # Version 1, independent blocks, no checksums, blocks of 64 KiB.
    assert packed.startswith(b"\x04\x22\x4d\x18\x60\x40\x82")
    assert packed.endswith(b"\x00\x00\x00\x00")
    assert bytes(cramjam.lz4.decompress(packed)) == sample(200_000)


def test_lz4_with_dependent_blocks_and_checksums_is_read() -> None:
    data = sample(300_000)
    packed = bytes(cramjam.lz4.compress(data))
    assert packed[4] & 0x20 == 0
    assert decompress(LZ4, packed, len(data)) == data


def test_snappy_is_written_in_xerials_frame_and_read_raw_too() -> None:
    data = sample(100_000)
    packed = compress(SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    assert struct.unpack_from(">i", packed, 16)[0] < 32 * 1024
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_frames_in_a_row_are_read_as_one(codec: int) -> None:
    packed = compress(codec, b"one ") + compress(codec, b"two")
    assert decompress(codec, packed, 7) == b"one two"
    with pytest.raises(RemoteError):
        decompress(codec, packed, 6)


@pytest.mark.parametrize("size", [(4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9_000_000])
def test_gzip_is_inflated_in_pieces_up_to_the_limit(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    packed = gzip.compress(data)
    assert decompress(GZIP, packed, size) == data
    with pytest.raises(RemoteError, match="more than"):
        decompress(GZIP, packed, size - 1)
    with pytest.raises(RemoteError, match="ends early"):
        decompress(GZIP, packed[:-9], size)


def test_what_thousands_of_gzip_members_cost_grows_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leaves what follows it, which is copied: 20 bytes must not cost a copy of a whole batch."""
    members = 20_000
    made = zlib.decompressobj
    taken = 0

    class Counting:
        def __init__(self, window: int) -> None:
            self.inflater = made(window)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inflater, name)

        def decompress(self, data: bytes, length: int) -> bytes:
            nonlocal taken
            taken += len(data)
            return self.inflater.decompress(data, length)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    packed = gzip.compress(b"") * members + gzip.compress(b"data")
    assert decompress(GZIP, packed, 4) == b"data"
    assert members < taken < members * (32 << 10)


@pytest.mark.parametrize("size", [16_383, 16_384, 16_385, 32_768])
def test_a_gzip_member_may_end_anywhere_in_what_is_read_at_once(size: int) -> None:
    first = gzip.compress(random.Random(1).randbytes(size), compresslevel=0)
    for cut in range(len(first) - size):
        packed = first + gzip.compress(b"data" + bytes(cut))
        assert decompress(GZIP, packed, 2 * size)[size:] == b"data" + bytes(cut)


@pytest.mark.parametrize(("codec", "rest"), [(GZIP, b"zzzz"), (LZ4, b"zzzz"), (SNAPPY, b"zzz")])
def test_bytes_after_the_end_are_left_alone_as_java_leaves_them(codec: int, rest: bytes) -> None:
    assert decompress(codec, compress(codec, b"data") + rest, 100) == b"data"


def test_of_lz4_one_frame_is_read_as_java_reads_it() -> None:
    """No consumer of Java's finds the records of another, so they count for no batch that is opened."""
    for rest in (compress(LZ4, b"more"), struct.pack("<II", 0x184D2A53, 5) + b"hello"):
        assert decompress(LZ4, compress(LZ4, b"data") + rest, 4) == b"data"
        assert expansion_bound(LZ4, compress(LZ4, b"data") + rest) == expansion_bound(LZ4, compress(LZ4, b"data"))


def test_skippable_frames_are_skipped_where_java_skips_them() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    assert decompress(ZSTD, skippable + compress(ZSTD, b"data"), 100) == b"data"
    with pytest.raises(RemoteError, match="does not start with a frame"):
        decompress(LZ4, skippable + compress(LZ4, b"data"), 100)


@NAMED
def test_damaged_data_is_invalid(codec: int) -> None:
    packed = compress(codec, sample(5000))
    for damaged in (b"", b"garbage!" * 3, packed[: len(packed) // 2], packed[:-1], packed[:3]):
        with pytest.raises(RemoteError) as caught:
            decompress(codec, damaged, 1 * MIB)
        assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


def test_an_unknown_codec_is_not_supported() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(RemoteError) as caught:
            decompress(codec, b"x", 100)
        assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(ValueError, match="codec 5"):
        compress(5, b"x")


LARGE = 40 * MIB  # more than a thousand of xerial's blocks
LARGE_ONES: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, lambda data: gzip.compress(data, 1)),
    "snappy": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy in frames": (SNAPPY, lambda data: compress(SNAPPY, data)),
    "lz4": (LZ4, lambda data: compress(LZ4, data)),
    "zstd": (ZSTD, lambda data: compress(ZSTD, data)),
}


def no_descriptor(*_args: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


def no_memory(*_args: object) -> mmap.mmap:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


LACKS: dict[str, tuple[object, str, object]] = {
    "a descriptor": (os, "memfd_create", no_descriptor),
    "room": (os, "posix_fallocate", no_memory),
    "addresses": (mmap, "mmap", no_memory),
    "such memory": (os, "memfd_create", None),
}


@pytest.mark.parametrize("lack", ["nothing", *LACKS])
@pytest.mark.parametrize("name", LARGE_ONES)
def test_what_is_large_comes_back_whatever_the_system_lacks(
    name: str, lack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing is told as an error of files, and must not pass for one of the disk."""
    codec, pack = LARGE_ONES[name]
    data = sample(MIB) * (LARGE // MIB) + b"and an end"
    packed = pack(data)
    if lack in LACKS:
        module, attribute, instead = LACKS[lack]
        if instead is None:
            monkeypatch.delattr(module, attribute)
        else:
            monkeypatch.setattr(module, attribute, instead)
    descriptors = len(os.listdir("/proc/self/fd"))
    assert decompress(codec, packed, 2 * LARGE) == data
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(RemoteError) as caught:
        decompress(codec, packed, len(data) - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(RemoteError) as caught:
        decompress(codec, packed[:-3], 2 * LARGE)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("name", LARGE_ONES)
def test_others_go_on_while_a_large_batch_is_opened(name: str) -> None:
    """A lookup by timestamp that opened 120 MB held everybody up for a third of a second."""
    codec, pack = LARGE_ONES[name]
    packed = pack(bytes(96 * MIB))
    # A busy machine holds up everybody now and then: one try of eight tells.
    assert any(share_of_the_longest_hold(codec, packed) < 0.2 for _ in range(8))


def share_of_the_longest_hold(codec: int, packed: bytes) -> float:
    """How much of the time in which a thread decompresses was the longest in which this one could not run."""
    begun, ended = threading.Event(), threading.Event()

    def opens() -> None:
        begun.set()
        decompress(codec, packed, 96 * MIB)
        ended.set()

    thread = threading.Thread(target=opens)
    thread.start()
    begun.wait()
    start = last = time.perf_counter()
    longest = 0.0
    while not ended.is_set():
        time.sleep(0.0002)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    thread.join()
    return longest / (last - start)


def zeros_gzip(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


def zeros_zstd_rle(size: int) -> bytes:
    """Four bytes for each 128 KiB: the densest bomb there is."""
    block = struct.pack("<I", (128 * 1024) << 3 | 1 << 1)[:3] + b"\x00"
    last = struct.pack("<I", (128 * 1024) << 3 | 1 << 1 | 1)[:3] + b"\x00"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * (size // (128 * 1024) - 1) + last


def zeros_xerial(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * (size // MIB)


def lying_snappy(size: int) -> bytes:
    return b"\xff\xff\xff\xff\x0f" + bytes(cramjam.snappy.compress_raw(bytes(1000)))[2:]


BOMBS = {
    "gzip": (GZIP, zeros_gzip),
    "gzip members": (GZIP, lambda size: gzip.compress(bytes(MIB)) * (size // MIB)),
    "snappy": (SNAPPY, lambda size: bytes(cramjam.snappy.compress_raw(bytes(size)))),
    "snappy in frames": (SNAPPY, zeros_xerial),
    "snappy that lies": (SNAPPY, lying_snappy),
    "lz4": (LZ4, lambda size: compress(LZ4, bytes(size))),
    "lz4 in large blocks": (LZ4, lambda size: bytes(cramjam.lz4.compress(bytes(size)))),
    "zstd": (ZSTD, lambda size: compress(ZSTD, bytes(size))),
    "zstd of repeats": (ZSTD, zeros_zstd_rle),
    "zstd frames": (ZSTD, lambda size: compress(ZSTD, bytes(MIB)) * (size // MIB)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(name: str) -> None:
    codec, make = BOMBS[name]
    limit = 2 * MIB
    bomb = make(400 * MIB)
    assert len(bomb) < 40 * MIB
    grown = Path("/proc/self/clear_refs")
    if not grown.exists():
        pytest.skip("peak memory can be told on Linux only")
    grown.write_text("5")
    before = peak_rss()
    with pytest.raises(RemoteError) as caught:
        decompress(codec, bomb, limit)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    # The output twice, as buffer and as bytes, and what a decompressor keeps: zstd its window, lz4 two of its blocks.
    assert peak_rss() - before < 2 * limit + 16 * MIB + len(bomb)


def peak_rss() -> int:
    """The most memory the process had since `clear_refs` was last written to."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
