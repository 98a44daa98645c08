"""Makes the function that reads one version of a message.

Rules for reading what a peer sent:
- A length is checked against the bytes left before anything is made from it, so no more is allocated than the frame
  can hold, and the elements of all arrays are counted against `left`, which whoever reads a request sets; -1 (0 in
  compact lengths) is null where the version allows it, and an error elsewhere.
- Only `DECODE_FAULTS` and RemoteError come out, and `Message` turns the first into the second.
- Strings that are not UTF-8 have the offending bytes replaced, as Java does it: no peer can fail a request so.
- A tagged field is exactly as long as it says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from mainstem.protocol.codec import ONE_BYTE_VARINT_MAX, Decoder, Source
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fields import MISSING, Field, Kind, Struct, fields_of
from mainstem.protocol.primitives import STRING_BYTES_MAX, UUID_BYTES, read_uvarint, too_many_elements

REMEMBERED_ARRAY_MAX: Final = 256


def make_decoder(cls: type[Struct], version: int, flexible: bool) -> Decoder:
    return _DecoderSource(cls, version, flexible).function


class _Unpackers(dict[int, Callable[..., Any]]):
    """`unpack_from` for n numbers of a kind, by n; only those of short arrays are remembered."""

    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code

    def __missing__(self, count: int) -> Callable[..., Any]:
        function = struct.Struct(f">{count}{self.code}").unpack_from
        if count <= REMEMBERED_ARRAY_MAX:
            self[count] = function
        return function


class _DecoderSource(Source):
    """`decode(data, at, left)`: the message at a position, and the position after it."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.pending: list[tuple[str, str]] = []
        self.scope.update(read_uvarint=read_uvarint, short=_short, too_many_elements=too_many_elements)
        self.line("end = len(data)")
        message = self.new_name("message")
        self.struct(cls, message, cls.__name__)
        self.flush()
        self.line(f"return {message}, at")
        self.function: Decoder = self.make("decode", "data, at, left")

    def flush(self) -> None:
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        if codes == "B":
            self.line(f"{targets} = data[at]; at += 1")
        else:
            name = f"unpack_{codes.replace('?', 'o')}"
            self.scope.setdefault(name, struct.Struct(f">{codes}").unpack_from)
            comma = "," if len(self.pending) == 1 else ""
            self.line(f"{targets}{comma} = {name}(data, at); at += {struct.calcsize(f'>{codes}')}")
        self.pending = []

    def struct(self, cls: type[Struct], variable: str, path: str) -> None:
        made = f"new_{cls.__name__}"
        self.scope[made] = cls.__new__
        self.scope[cls.__name__] = cls
        self.line(f"{variable} = {made}({cls.__name__})")
        self.line(f"{variable}.unknown_tags = None")
        tagged = []
        for field in fields_of(cls):
            target = f"{variable}.{field.name}"
            if field.in_version(self.version) and not field.tagged_in(self.version):
                self.value(field, target, f"{path}.{field.name}")
                continue
            if field.in_version(self.version):
                tagged.append(field)
            if field.spec.default_factory is MISSING:
                self.line(f"{target} = {self.default(field)}")
            else:
                self.line(f"{target} = {self.bind('make', field.spec.default_factory)}()")
        if self.flexible:
            self.tags(tagged, variable, path)

    def tags(self, tagged: list[Field], variable: str, path: str) -> None:
        count, tag, size, stop = (self.new_name(stem) for stem in ("count", "tag", "size", "stop"))
        self.pending.append(("B", count))
        self.flush()
        self.line(f"if {count}:")
        self.depth += 1
        self.line(f"if {count} > {ONE_BYTE_VARINT_MAX}: {count}, at = read_uvarint(data, at - 1)")
        self.take_elements(count)
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, at = read_uvarint(data, at)")
        self.line(f"{size}, at = read_uvarint(data, at)")
        self.line(f"{stop} = at + {size}")
        self.line(f"if {stop} > end: raise short('{path}', {size}, end - at)")
        word = "if"
        for field in tagged:
            self.line(f"{word} {tag} == {field.spec.tag}:")
            self.depth += 1
            self.value(field, f"{variable}.{field.name}", f"{path}.{field.name}")
            self.flush()
            self.line(f"if at != {stop}: raise short('{path}.{field.name}', {size}, at - {stop} + {size})")
            self.depth -= 1
            word = "elif"
        if tagged:
            self.line("else:")
            self.depth += 1
        self.line(f"if {variable}.unknown_tags is None: {variable}.unknown_tags = {{}}")
        self.line(f"{variable}.unknown_tags[{tag}] = data[at:{stop}]; at = {stop}")
        self.depth -= 3 if tagged else 2

    def value(self, field: Field, target: str, path: str) -> None:
        nullable = field.nullable_in(self.version)
        if field.array:
            self.array(field, target, path, nullable)
        elif field.struct is not None:
            self.nested(field.struct, target, path, nullable, field.tagged_in(self.version))
        else:
            assert field.kind is not None
            self.scalar(field.kind, target, path, nullable, self.flexible and not field.spec.legacy)

    def length(self, code: str, compact: bool) -> str:
        """Reads a length together with what is pending before it; one more than it where it is compact."""
        length = self.new_name("length")
        self.pending.append(("B" if compact else code, length))
        self.flush()
        if compact:
            self.line(f"if {length} > {ONE_BYTE_VARINT_MAX}: {length}, at = read_uvarint(data, at - 1)")
        return length

    def scalar(self, kind: Kind, target: str, path: str, nullable: bool, compact: bool) -> None:
        if kind.code:
            self.pending.append((kind.code, target))
            return
        is_string = kind.name == "string"
        length = self.length("h" if is_string else "i", compact)
        stop = self.new_name("stop")
        if nullable:
            self.line(f"if {length} == {0 if compact else -1}: {target} = None")
            self.line("else:")
            self.depth += 1
        self.line(f"{stop} = at + {length}{' - 1' if compact else ''}")
        bound = f" or {length} > {STRING_BYTES_MAX + 1}" if is_string and compact else ""
        self.line(f"if {stop} < at or {stop} > end{bound}: raise short('{path}', {stop} - at, end - at)")
        convert = ".decode('utf-8', 'replace')" if is_string else ""
        self.line(f"{target} = data[at:{stop}]{convert}; at = {stop}")
        if nullable:
            self.depth -= 1

    def array(self, field: Field, target: str, path: str, nullable: bool) -> None:
        length = self.length("i", self.flexible)
        if nullable:
            self.line(f"if {length} == {0 if self.flexible else -1}: {target} = None")
            self.line("else:")
            self.depth += 1
        if self.flexible:
            self.line(f"{length} -= 1")
        if field.kind is not None and field.kind.code:
            stop = self.new_name("stop")
            self.line(f"{stop} = at + {length} * {field.kind.size}")
            self.line(f"if {length} < 0 or {stop} > end: raise short('{path}', {length}, end - at)")
            self.take_elements(length)
            if field.kind.name == "uuid":
                self.line(f"{target} = [data[i : i + {UUID_BYTES}] for i in range(at, {stop}, {UUID_BYTES})]")
            else:
                table = self.bind("unpack", _Unpackers(field.kind.code))
                self.line(f"{target} = list({table}[{length}](data, at))")
            self.line(f"at = {stop}")
        else:
            # Each element takes a byte at least, so that more of them than bytes cannot be meant.
            self.line(f"if {length} < 0 or {length} > end - at: raise short('{path}', {length}, end - at)")
            self.take_elements(length)
            items, item = self.new_name("items"), self.new_name("item")
            self.line(f"{target} = {items} = []")
            self.line(f"for _ in range({length}):")
            self.depth += 1
            if field.struct is not None:
                self.struct(field.struct, item, path)
            else:
                assert field.kind is not None
                self.scalar(field.kind, item, path, False, self.flexible)
            self.flush()
            self.line(f"{items}.append({item})")
            self.depth -= 1
        if nullable:
            self.depth -= 1

    def take_elements(self, count: str) -> None:
        self.line(f"left -= {count}")
        self.line("if left < 0: raise too_many_elements()")

    def nested(self, cls: type[Struct], target: str, path: str, nullable: bool, tagged: bool) -> None:
        inner = self.new_name("inner")
        if nullable:
            marker = self.new_name("marker")
            self.pending.append(("b", marker))
            self.flush()
            self.line(f"if {marker} {'<=' if tagged else '<'} 0: {target} = None")
            self.line("else:")
            self.depth += 1
        self.struct(cls, inner, path)
        self.flush()
        self.line(f"{target} = {inner}")
        if nullable:
            self.depth -= 1


def _short(path: str, wanted: int, left: int) -> RemoteError:
    return RemoteError(ErrorCode.CORRUPT_MESSAGE, f"{path} says it has {wanted} where {left} bytes are left")
