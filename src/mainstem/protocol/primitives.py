"""The smallest pieces of Kafka's encoding: unsigned varints, uuids, strings, and a cursor for reading by hand.

An unsigned varint carries 32 bits in up to five bytes, low bits first (the zigzag varints of records are in `varint`).
A uuid is 16 `bytes` throughout (it costs nothing to read, compare or write); its text, in files and tools, is the
URL-safe base64 of Kafka's `Uuid` without padding.

`Cursor` and the `write_…` functions serve the codecs that are written by hand (headers, Produce, Fetch). `compact`
says which lengths a version has: one more than the length as an unsigned varint, 0 for null; or an int16 (strings) or
int32 (arrays, records), -1 for null.

What a peer sent too short or too long raises RemoteError and nothing else.
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64

from mainstem.protocol.errors import ErrorCode, RemoteError

UUID_BYTES: Final = 16
ZERO_UUID: Final = bytes(16)
STRING_BYTES_MAX: Final = 0x7FFF
REQUEST_ELEMENTS_MAX: Final = 100_000
"""How many elements the arrays of one request may have, all together, its tagged fields among them. Each costs a server
many times the two bytes that it costs a client to send, and whoever else is served waits meanwhile."""
ELEMENTS_MAX: Final = 0x7FFFFFFF
"""As many as a frame can have."""


def read_uvarint(data: bytes, position: i64) -> tuple[i64, i64]:
    """The unsigned varint at `position`, and the position after it."""
    length: i64 = len(data)
    value: i64 = 0
    shift: i64 = 0
    at: i64 = position
    while at < length and shift < 35:
        byte: i64 = i64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a varint of more than 32 bits at {position}")
            return value, at
        shift += 7
    if shift >= 35:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a varint of more than five bytes at {position}")
    raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"the data ends inside the varint at {position}")


def write_uvarint(writer: BytesWriter, value: i64) -> None:
    rest: i64 = value
    while rest >= 0x80:
        writer.append((rest & 0x7F) | 0x80)
        rest >>= 7
    writer.append(rest)


def uvarint(value: i64) -> bytes:
    """`value`, from 0 to 2^32 - 1, as an unsigned varint."""
    if value < 0 or value > 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit an unsigned varint; 0 to 2^32 - 1 do")
    writer = BytesWriter()
    write_uvarint(writer, value)
    return writer.getvalue()


class Cursor:
    """Reads one value after another from `data`. A length is checked against what is left before it is used."""

    __slots__ = ("at", "data", "elements_left", "end")

    def __init__(self, data: bytes, at: i64, elements_max: i64 = ELEMENTS_MAX) -> None:
        self.data = data
        self.at: i64 = at
        self.end: i64 = len(data)
        self.elements_left: i64 = elements_max

    def take(self, size: i64) -> i64:
        """Steps over `size` bytes and returns where they begin."""
        at: i64 = self.at
        if size < 0 or size > self.end - at:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes wanted at {at} where {self.end - at} are left")
        self.at = at + size
        return at

    def int8(self) -> i64:
        byte = i64(self.data[self.take(1)])
        return byte if byte < 0x80 else byte - 0x100

    def int16(self) -> i64:
        return i64(read_i16_be(self.data, self.take(2)))

    def int32(self) -> i64:
        return i64(read_i32_be(self.data, self.take(4)))

    def int64(self) -> i64:
        return read_i64_be(self.data, self.take(8))

    def uvarint(self) -> i64:
        at: i64 = self.at
        if at < self.end:
            byte = i64(self.data[at])
            if byte < 0x80:
                self.at = at + 1
                return byte
        value, self.at = read_uvarint(self.data, at)
        return value

    def uuid(self) -> bytes:
        at = self.take(UUID_BYTES)
        return self.data[at : at + UUID_BYTES]

    def nullable_string(self, compact: bool) -> str | None:
        size = self.uvarint() - 1 if compact else self.int16()
        if size == -1:
            return None
        if size > STRING_BYTES_MAX:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a string of {size} bytes; {STRING_BYTES_MAX} are allowed")
        at = self.take(size)
        return self.data[at : at + size].decode("utf-8", "replace")

    def string(self, compact: bool) -> str:
        text = self.nullable_string(compact)
        if text is None:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"null for a string that is not nullable, before {self.at}")
        return text

    def array(self, compact: bool) -> i64:
        """The length of an array that is not null. Elements take a byte each at least, so more cannot be meant."""
        count = self.nullable_array(compact)
        if count < 0:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"null for an array that is not nullable, before {self.at}")
        self.elements_left -= count
        if self.elements_left < 0:
            raise too_many_elements()
        return count

    def nullable_array(self, compact: bool) -> i64:
        """The length of an array, -1 for null."""
        count = self.uvarint() - 1 if compact else self.int32()
        if count < -1 or count > self.end - self.at:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"{count} elements where {self.end - self.at} bytes are left")
        return count

    def tags(self) -> i64:
        """How many tagged fields follow. They cost as much to read as elements do, and count as such."""
        count = self.uvarint()
        self.elements_left -= count
        if self.elements_left < 0:
            raise too_many_elements()
        return count

    def skip_tags(self) -> None:
        """Steps over a section of tagged fields."""
        for _ in range(self.tags()):
            self.uvarint()
            self.take(self.uvarint())

    def tag_end(self) -> i64:
        """Reads the size of a tagged field and returns where it ends."""
        size = self.uvarint()
        if size > self.end - self.at:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a tagged field of {size} bytes passes the end")
        return self.at + size

    def leave_tag(self, stop: i64) -> None:
        """Makes sure that what was read of a tagged field is all of it."""
        if self.at != stop:
            raise RemoteError(
                ErrorCode.CORRUPT_MESSAGE, f"a tagged field ends at {self.at} and not, as it says, at {stop}"
            )


def too_many_elements() -> RemoteError:
    return RemoteError(ErrorCode.INVALID_REQUEST, f"a request with more than {REQUEST_ELEMENTS_MAX} elements")


def write_nullable_string(writer: BytesWriter, text: str | None, compact: bool) -> None:
    if text is None:
        if compact:
            writer.append(0)
        else:
            write_i16_be(writer, -1)
        return
    data = text.encode()
    size: i64 = len(data)
    if size > STRING_BYTES_MAX:
        raise ValueError(f"a string of {size} bytes; {STRING_BYTES_MAX} are allowed")
    if compact:
        write_uvarint(writer, size + 1)
    else:
        write_i16_be(writer, i16(size))
    writer.write(data)


def write_length(writer: BytesWriter, length: i64, compact: bool) -> None:
    """The length of an array or of records, -1 for null."""
    if compact:
        write_uvarint(writer, length + 1)
    else:
        write_i32_be(writer, i32(length))
