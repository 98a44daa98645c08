"""Producer snapshots (`.snapshot`): what is known of a partition's producers up to an offset, which is the file's name.

Version (int16, 1), CRC-32C of all that follows (uint32), number of producers (int32), then 46 bytes each, big-endian:
producer id (int64), epoch (int16), last sequence (int32), last offset (int64), offset delta of the last batch (int32),
timestamp (int64), coordinator epoch (int32), first offset of the open transaction (int64, -1 where none is open).

A snapshot that does not match its CRC or has another version is ValueError: the caller removes it and goes on with an
older one, since the log has it all (KAFKA-9892).

There may be a million producers: a `SnapshotFile` is captured on the event loop and written by a job.
"""

import threading
from collections.abc import Callable
from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i64

from mainstem.core.log.producers import BatchMark, CapturedProducers, Producer
from mainstem.protocol.checksum import crc32c
from mainstem.storage.fs import File, FileSystem

VERSION: Final = 1
HEADER_BYTES: Final = 10
ENTRY_BYTES: Final = 46


_PIECE_BYTES: Final = 1 << 20


def encode_snapshot(captured: CapturedProducers, breathe: Callable[[], None] | None = None) -> list[bytes]:
    """The bytes in pieces of about a megabyte: one, where there are few producers."""
    count = BytesWriter()
    write_i32_be(count, len(captured))
    pieces: list[bytes] = []
    piece: list[bytes] = [count.getvalue()]
    piece_bytes: i64 = 0
    checksum: i64 = crc32c(piece[0])
    for producers in captured.in_snapshot_order(breathe):
        data = _encode_producers(producers)
        checksum = crc32c(data, checksum)
        piece.append(data)
        piece_bytes += len(data)
        if piece_bytes >= _PIECE_BYTES:
            pieces.append(b"".join(piece))
            piece = []
            piece_bytes = 0
    if piece:
        pieces.append(b"".join(piece))
    header = BytesWriter()
    write_i16_be(header, VERSION)
    # The CRC is unsigned, the writer's integers are signed.
    write_i32_be(header, checksum - (1 << 32) if checksum >= 1 << 31 else checksum)  # type: ignore[arg-type]
    pieces[0] = header.getvalue() + pieces[0]
    return pieces


def _encode_producers(producers: list[Producer]) -> bytes:
    body = BytesWriter()
    for producer in producers:
        write_i64_be(body, producer.producer_id)
        write_i16_be(body, producer.epoch)  # type: ignore[arg-type]
        write_i32_be(body, producer.last_sequence)  # type: ignore[arg-type]
        write_i64_be(body, producer.last_offset)
        write_i32_be(body, producer.last_offset_delta)  # type: ignore[arg-type]
        write_i64_be(body, producer.last_timestamp)
        write_i32_be(body, producer.coordinator_epoch)  # type: ignore[arg-type]
        write_i64_be(body, producer.txn_first_offset)
    return body.getvalue()


def decode_snapshot(data: bytes) -> list[Producer]:
    if len(data) < HEADER_BYTES:
        raise ValueError(f"{len(data)} bytes are no snapshot")
    version: i64 = i64(read_i16_be(data, 0))
    if version != VERSION:
        raise ValueError(f"snapshot version {version} is not known")
    if i64(read_i32_be(data, 2)) & 0xFFFFFFFF != i64(crc32c(memoryview(data)[6:])):
        raise ValueError("the snapshot does not match its CRC")
    count: i64 = i64(read_i32_be(data, 6))
    if count < 0 or HEADER_BYTES + count * ENTRY_BYTES != len(data):
        raise ValueError(f"{count} producers do not take {len(data)} bytes")
    producers: list[Producer] = []
    at: i64 = HEADER_BYTES
    while at < len(data):
        producer = Producer(read_i64_be(data, at))
        producer.epoch = i64(read_i16_be(data, at + 8))
        last_sequence: i64 = i64(read_i32_be(data, at + 10))
        last_offset: i64 = read_i64_be(data, at + 14)
        timestamp: i64 = read_i64_be(data, at + 26)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = i64(read_i32_be(data, at + 34))
        producer.txn_first_offset = read_i64_be(data, at + 38)
        if last_offset >= 0:
            delta: i64 = i64(read_i32_be(data, at + 22))
            producer.batches.append(BatchMark(last_sequence, last_offset, delta, timestamp))
            producer.older_unread = last_sequence >= 0
        producers.append(producer)
        at += ENTRY_BYTES
    return producers


def _says(file: File, size: i64, pieces: list[bytes]) -> bool:
    """Whether the file holds these bytes already, as most do that a recovery comes to."""
    position: i64 = 0
    for piece in pieces:
        if file.read_at(position, len(piece)) != piece:
            return False
        position += len(piece)
    return position == size


class _DroppedError(Exception):
    pass


class SnapshotFile:
    """One snapshot on its way to the disk, or there already where `captured` is None.

    Several jobs may have it, because each of them needs it to be durable: the first one writes it, and where that
    failed, or its sync, the others fail alike (D5).
    """

    def __init__(self, fs: FileSystem, path: str, captured: CapturedProducers | None) -> None:
        self.path = path
        self._fs = fs
        self._captured = captured
        self._failure: OSError | None = None
        self._dropped = False
        self._writing = threading.Lock()

    @property
    def is_written(self) -> bool:
        return self._captured is None

    @property
    def is_dropped(self) -> bool:
        return self._dropped

    def drop(self) -> None:
        """On the loop: the snapshot is not wanted any more. When this returns, it was written or never will be."""
        self._dropped = True
        with self._writing:
            self._captured = None

    def write(self, breathe: Callable[[], None] | None = None) -> None:
        """Writes it, unless that was done. Blocks."""
        with self._writing:
            failure = self._failure
            if failure is not None:
                raise failure
            captured = self._captured
            if captured is None or self.is_dropped:
                return

            def pause() -> None:
                if breathe is not None:
                    breathe()
                if self.is_dropped:
                    raise _DroppedError

            try:
                self._write(encode_snapshot(captured, pause))
                self._captured = None
            except _DroppedError:
                return
            except OSError as error:
                self._failure = error
                raise

    def _write(self, pieces: list[bytes]) -> None:
        file = self._fs.open(self.path, create=True)
        try:
            size: i64 = file.size()
            if size > 0:
                if _says(file, size, pieces):
                    return
                file.truncate(0)
            position: i64 = 0
            for piece in pieces:
                file.write_at(position, [piece])
                position += len(piece)
        finally:
            file.close()

    def make_durable(self, breathe: Callable[[], None] | None = None) -> None:
        """Writes it, if need be, and syncs it, unless its segment was deleted meanwhile. Blocks."""
        self.write(breathe)
        try:
            file = self._fs.open(self.path)
        except FileNotFoundError:
            return
        try:
            file.sync()
        except OSError as error:
            self._failure = error
            raise
        finally:
            file.close()
