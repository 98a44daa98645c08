"""Kafka's four codecs, with a bound on what a batch may expand to.

What we write is what Java's clients write: gzip; snappy in xerial's frame of 32 KiB blocks; lz4 frames of independent
64 KiB blocks without checksums (Java refuses dependent ones); zstd frames. What we read is what any client writes:
raw snappy, dependent lz4 blocks, checksums, and several frames in a row too. But where a stream ends Java decides: of
lz4 it reads one frame, after which, as after gzip, anything may come; of xerial's frame it leaves alone what is too
short for the size of a block.

`decompress` never allocates much past `limit`. gzip is inflated up to it; snappy says its size in front; lz4 and zstd
are walked block by block first, headers only, because every block says or bounds its size.

Data that does not decompress is INVALID_RECORD: the CRC held, so sending it again cannot help, and a client gives up at
once as it does upon Kafka's UNKNOWN_SERVER_ERROR here. Data that decompresses to more than the limit is
MESSAGE_TOO_LARGE, upon which a Java producer splits its batch and tries again.

What is large is put together in memory that is a file's (`_Outside`): the copies, which take a tenth of a second for
120 MB, are made without the interpreter, so that other threads go on.

Levels are those of `compression.<codec>.level` (KIP-390).
"""

import mmap
import os
import zlib
from typing import Final

import cramjam
import lz4.block
from librt.strings import BytesWriter, read_i32_be, read_i32_le, write_i32_be, write_i32_le
from mypy_extensions import i64

from mainstem.protocol.errors import ErrorCode, RemoteError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

DEFAULT_LIMIT: Final = 128 << 20
"""For callers that have no limit of their own: more than any request Kafka accepts by default."""

GZIP_DEFAULT_LEVEL: Final = -1
LZ4_DEFAULT_LEVEL: Final = 9
ZSTD_DEFAULT_LEVEL: Final = 3

_GZIP_USUAL_LEVEL: Final = 6  # what zlib takes -1 for
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31  # 2^15 bytes, in gzip's wrapping
_GZIP_PIECE_BYTES: Final = 4 << 20
"""How much is inflated at once: zlib puts together what came out while no other thread may run."""

_GZIP_INPUT_BYTES: Final = 16 << 10
"""How much is given to it at once: it copies what it leaves of it, after every member."""

_LARGE_BYTES: Final = 4 << 20
"""From here on a copy takes long enough to be made without the interpreter: a millisecond and more."""

_GZIP_RATIO_MAX: Final = 1032
_SNAPPY_RATIO_MAX: Final = 64

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

_LZ4_MAGIC: Final = 0x184D2204
# Version 1, independent blocks, no checksums, 64 KiB blocks; the third byte is the header's own checksum.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES: Final = 64 * 1024

_ZSTD_MAGIC: Final = -0x2D04AD8  # 0xFD2FB528 as a signed number
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
# Frames with these magic numbers are skipped by readers of zstd, and by those of lz4 but Java's.
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFFFFF0


def compress(codec: i64, data: bytes, level: int | None = None) -> bytes:
    """`data` as a Java client would compress it. The level is the codec's own; None is Kafka's default."""
    if codec == NONE:
        return data
    if codec == GZIP:
        if level is None or level == GZIP_DEFAULT_LEVEL:
            level = _GZIP_USUAL_LEVEL
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == SNAPPY:
        return _compress_xerial(data)
    if codec == LZ4:
        return _compress_lz4(data, LZ4_DEFAULT_LEVEL if level is None else level)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=ZSTD_DEFAULT_LEVEL if level is None else level))
    raise ValueError(f"compression codec {codec}: must be 0 to 4")


def decompress(codec: i64, data: bytes, limit: i64) -> bytes:
    """What `data` expands to; RemoteError if that is more than `limit` bytes or if the data is damaged."""
    try:
        if codec == GZIP:
            return _decompress_gzip(data, limit)
        if codec == SNAPPY:
            if data.startswith(_XERIAL_MAGIC):
                return _decompress_xerial(data, limit)
            return _decompress_snappy(data, limit)
        if codec == LZ4:
            bound, end = _lz4_frame(data)
            return _decompress_into(codec, data if end == len(data) else data[:end], bound, limit)
        if codec == ZSTD:
            return _decompress_into(codec, data, _zstd_bound(data), limit)
    except (IndexError, zlib.error, cramjam.DecompressionError) as error:
        raise RemoteError(ErrorCode.INVALID_RECORD, f"{CODEC_NAMES[codec]} data is damaged: {error}") from None
    if codec == NONE:
        if len(data) > limit:
            raise _too_large(NONE, limit)
        return data
    raise RemoteError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is not known")


def expansion_bound(codec: i64, data: bytes | memoryview) -> i64:
    """At most how much `data` expands to, or claims to, from what is cheap to know; 0 where it is damaged."""
    try:
        if codec == GZIP:
            return len(data) * _GZIP_RATIO_MAX
        if codec == SNAPPY:
            return len(data) * _SNAPPY_RATIO_MAX
        if codec == LZ4:
            return _lz4_frame(bytes(data))[0]
        if codec == ZSTD:
            return _zstd_bound(bytes(data))
    except (IndexError, RemoteError):
        return 0
    return len(data)


def _too_large(codec: i64, limit: i64) -> RemoteError:
    return RemoteError(ErrorCode.MESSAGE_TOO_LARGE, f"{CODEC_NAMES[codec]} data expands to more than {limit} bytes")


def _decompress_gzip(data: bytes, limit: i64) -> bytes:
    """Members may follow each other. Like Java, stops at anything else that follows one."""
    parts: list[bytes] = []
    left: i64 = limit
    at: i64 = 0
    end: i64 = len(data)
    while True:
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        while not inflater.eof:
            piece = inflater.unconsumed_tail
            if not piece:
                piece = data[at : at + _GZIP_INPUT_BYTES]
                at += len(piece)
            # One byte more than allowed tells too much from just enough; a maximum of 0 would mean none.
            part = inflater.decompress(piece, min(left + 1, _GZIP_PIECE_BYTES))
            left -= len(part)
            if left < 0:
                raise _too_large(GZIP, limit)
            if not part and at == end and not inflater.unconsumed_tail and not inflater.eof:
                raise RemoteError(ErrorCode.INVALID_RECORD, "gzip data ends early")
            parts.append(part)
        at -= len(inflater.unused_data)
        if not data.startswith(_GZIP_MAGIC, at):
            return _join(parts, limit - left)


def _decompress_snappy(data: bytes, limit: i64) -> bytes:
    size: i64 = 0
    shift: i64 = 0
    position: i64 = 0
    while True:
        byte: i64 = data[position]
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise RemoteError(ErrorCode.INVALID_RECORD, "snappy data is damaged: no size in front")
    if size > limit:
        raise _too_large(SNAPPY, limit)
    # One byte takes part in at most 64 of the output (a copy of 64 in two bytes, at least): a larger claim is a lie,
    # and is found out before it is allocated.
    if size > _SNAPPY_RATIO_MAX * len(data):
        raise RemoteError(ErrorCode.INVALID_RECORD, f"snappy data of {len(data)} bytes claims to hold {size}")
    outside = _outside(size) if size >= _LARGE_BYTES else None
    if outside is None:
        return bytes(cramjam.snappy.decompress_raw(data))
    with outside:
        return outside.read(cramjam.snappy.decompress_raw_into(data, outside.room))


def _decompress_xerial(data: bytes, limit: i64) -> bytes:
    parts: list[bytes] = []
    position: i64 = len(_XERIAL_HEADER)
    left: i64 = limit
    end: i64 = len(data)
    if position > end:
        raise RemoteError(ErrorCode.INVALID_RECORD, "snappy data ends early")
    while end - position >= 4:
        size: i64 = i64(read_i32_be(data, position))
        if data.startswith(_XERIAL_MAGIC, position):
            # Streams that were concatenated: Java reads on.
            position += len(_XERIAL_HEADER)
            continue
        position += 4
        if size < 0 or size > end - position:
            raise RemoteError(ErrorCode.INVALID_RECORD, f"snappy block of {size} bytes where {end - position} are left")
        part = _decompress_snappy(data[position : position + size], left)
        left -= len(part)
        parts.append(part)
        position += size
    return _join(parts, limit - left)


def _compress_xerial(data: bytes) -> bytes:
    parts: list[bytes] = [_XERIAL_HEADER]
    position: i64 = 0
    end: i64 = len(data)
    while position < end:
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES]))
        writer = BytesWriter()
        write_i32_be(writer, len(block))
        parts.append(writer.getvalue())
        parts.append(block)
        position += _XERIAL_BLOCK_BYTES
    return b"".join(parts)


def _compress_lz4(data: bytes, level: int) -> bytes:
    parts: list[bytes] = [_LZ4_HEADER]
    position: i64 = 0
    end: i64 = len(data)
    while position < end:
        block = data[position : position + _LZ4_BLOCK_BYTES]
        # Kafka's default, 9, stands for the fast compressor; any other level is that of the thorough one.
        if level == LZ4_DEFAULT_LEVEL:
            packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        else:
            packed = lz4.block.compress(block, mode="high_compression", compression=level, store_size=False)
        writer = BytesWriter()
        if len(packed) < len(block):
            write_i32_le(writer, len(packed))
            parts.append(writer.getvalue())
            parts.append(packed)
        else:
            # The top bit says that the block is stored as it is.
            write_i32_le(writer, len(block) - 0x80000000)
            parts.append(writer.getvalue())
            parts.append(block)
        position += _LZ4_BLOCK_BYTES
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


def _decompress_into(codec: i64, data: bytes, bound: i64, limit: i64) -> bytes:
    """Into a buffer of the size that the blocks allow for, or of the limit if that is less."""
    room: i64 = min(bound, limit)
    module = cramjam.lz4 if codec == LZ4 else cramjam.zstd
    try:
        outside = _outside(room) if room >= _LARGE_BYTES else None
        if outside is not None:
            with outside:
                return outside.read(module.decompress_into(data, outside.room))
        buffer = bytearray(room)
        size: int = module.decompress_into(data, buffer)
        return bytes(memoryview(buffer)[:size])
    except cramjam.DecompressionError:
        if bound > limit:
            raise _too_large(codec, limit) from None
        raise


def _join(parts: list[bytes], size: i64) -> bytes:
    if len(parts) == 1:
        return parts[0]
    outside = _outside(size) if size >= _LARGE_BYTES else None
    if outside is None:
        return b"".join(parts)
    with outside:
        return outside.joined(parts)


def _outside(size: int) -> "_Outside | None":
    """None where there is none to be had: the copies keep the interpreter then, and nothing fails for it."""
    try:
        return _Outside(size)
    except (OSError, AttributeError):  # the latter of a Python that was built for an older C library
        return None


class _Outside:
    """Memory of a file without a name. What is written there by a codec or the kernel, and read from there into new
    bytes, is copied while other threads run: making bytes of a buffer, or of many bytes, keeps the interpreter."""

    def __init__(self, size: int) -> None:
        self._fd: int = os.memfd_create("mainstem-decompress")
        try:
            # All of it now, where it is an error that can be told: whoever writes later is killed.
            os.posix_fallocate(self._fd, 0, size)
            self.room = mmap.mmap(self._fd, size)
            """To be written to."""
        except OSError:
            os.close(self._fd)
            raise

    def __enter__(self) -> "_Outside":
        return self

    def __exit__(self, *_failure: object) -> None:
        self.room.close()
        os.close(self._fd)

    def read(self, size: int) -> bytes:
        """The first `size` bytes of the room."""
        return os.pread(self._fd, size, 0)

    def joined(self, parts: list[bytes]) -> bytes:
        """`parts`, for which there is room."""
        at = 0
        for part in parts:
            at += os.pwrite(self._fd, part, at)
        return self.read(at)


def _lz4_frame(data: bytes) -> tuple[i64, i64]:
    """At most how much the frame that `data` begins with expands to, and where it ends."""
    if i64(read_i32_le(data, 0)) != _LZ4_MAGIC:
        raise RemoteError(ErrorCode.INVALID_RECORD, "lz4 data does not start with a frame")
    bound: i64 = 0
    flags: i64 = data[4]
    block_bytes: i64 = 1 << (8 + 2 * ((i64(data[5]) >> 4) & 7))
    position: i64 = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    checksum_bytes: i64 = 4 if flags & 0x10 else 0
    while True:
        size: i64 = i64(read_i32_le(data, position)) & 0xFFFFFFFF
        position += 4
        if size == 0:
            break
        if size & 0x80000000:
            size &= 0x7FFFFFFF
            bound += min(size, block_bytes)
        else:
            # No byte of a block stands for more than 255 of the output.
            bound += min(size * 255, block_bytes)
        position += size + checksum_bytes
    return bound, position + (4 if flags & 0x04 else 0)


def _zstd_bound(data: bytes) -> i64:
    """At most how much the frames in `data` expand to (RFC 8878, 3.1.1)."""
    bound: i64 = 0
    position: i64 = 0
    end: i64 = len(data)
    while position < end:
        magic: i64 = i64(read_i32_le(data, position))
        if (magic & 0xFFFFFFFF) & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + (i64(read_i32_le(data, position + 4)) & 0xFFFFFFFF)
            continue
        if magic != _ZSTD_MAGIC:
            raise RemoteError(ErrorCode.INVALID_RECORD, "zstd data does not start with a frame")
        descriptor: i64 = data[position + 4]
        single_segment: i64 = (descriptor >> 5) & 1
        size_flag: i64 = descriptor >> 6
        dictionary_flag: i64 = descriptor & 3
        position += 5 + (1 - single_segment) + (4 if dictionary_flag == 3 else dictionary_flag)
        position += single_segment if size_flag == 0 else 1 << size_flag
        while True:
            header: i64 = i64(data[position]) | i64(data[position + 1]) << 8 | i64(data[position + 2]) << 16
            position += 3
            size: i64 = header >> 3
            kind: i64 = (header >> 1) & 3
            if kind == 0:
                bound += size
                position += size
            elif kind == 1:
                bound += size
                position += 1
            else:
                bound += _ZSTD_BLOCK_BYTES
                position += size
            if header & 1:
                break
        position += 4 if descriptor & 0x04 else 0
    return bound
