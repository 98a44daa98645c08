"""Makes the function that writes one version of a message.

What is pending (numbers, constants, lengths, arrays of numbers) goes out in one `struct` call as soon as something
else follows. Compact lengths are single bytes for almost all there is, so that a call takes them as bytes when they
are, and the pieces are written one by one when they are not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from mainstem.protocol.codec import ONE_BYTE_VARINT_MAX, Encoder, Source
from mainstem.protocol.fields import Field, Kind, Struct, fields_of
from mainstem.protocol.primitives import STRING_BYTES_MAX, UUID_BYTES, uvarint

# A byte before a nullable struct says whether there is one: 1, or this. A tagged field has its own idea of null.
NULL_STRUCT: Final = b"\xff"
NULL_TAGGED_STRUCT: Final = b"\x00"
REMEMBERED_FORMATS_MAX: Final = 512


def make_encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    return _EncoderSource(cls, version, flexible).function


class _Numbers:
    """An array of numbers that is pending: the names of its items and of its length, as it is written."""

    __slots__ = ("code", "items", "length")

    def __init__(self, code: str, items: str, length: str) -> None:
        self.code = code
        self.items = items
        self.length = length


class _Fixed:
    """A value of fixed width that is pending: its `struct` code and an expression for it."""

    __slots__ = ("code", "value")

    def __init__(self, code: str, value: str) -> None:
        self.code = code
        self.value = value


_Pending = _Fixed | _Numbers


class _Packers(dict[tuple[int, ...], Callable[..., bytes]]):
    """`pack` for a format with arrays in it, by how many numbers each has; so many are remembered and no more."""

    __slots__ = ("template",)

    def __init__(self, template: str) -> None:
        self.template = template

    def __missing__(self, counts: tuple[int, ...]) -> Callable[..., bytes]:
        function = struct.Struct(self.template % counts).pack
        if len(self) < REMEMBERED_FORMATS_MAX:
            self[counts] = function
        return function


class _EncoderSource(Source):
    """`encode(message, put)`: calls `put` with the pieces of the message in order."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.scope.update(uvarint=uvarint, tag_section=_tag_section, refuse=_refuse)
        self.pending: list[_Pending] = []
        self.put = "put"
        self.struct(cls, "message", cls.__name__)
        self.flush()
        self.line("return")
        self.function: Encoder = self.make("encode", "message, put")

    def packed(self, items: list[_Pending]) -> str:
        """An expression for the bytes of `items`, in one call."""
        codes, values, counts = "", [], []
        for item in items:
            if isinstance(item, _Fixed):
                codes += item.code
                values.append(item.value)
            else:
                codes += f"{'B' if self.flexible else 'i'}%d{item.code}"
                values += [item.length, f"*{item.items}"]
                counts.append(f"len({item.items})")
        if counts:
            table = self.bind("pack", _Packers(f">{codes}"))
            return f"{table}[{', '.join(counts)},]({', '.join(values)})"
        if all(value.lstrip("-").isdigit() for value in values):
            return repr(struct.pack(f">{codes}", *map(int, values)))
        name = f"pack_{codes.replace('?', 'o')}"
        self.scope.setdefault(name, struct.Struct(f">{codes}").pack)
        return f"{name}({', '.join(values)})"

    def flush(self) -> None:
        """Writes what is pending."""
        if self.pending:
            self.write([])

    def write(self, more: list[_Pending], condition: str = "", otherwise: list[str] | None = None) -> None:
        """Writes what is pending and `more` in one call; unless `condition` holds, `otherwise` in place of `more`."""
        conditions = [condition] if condition else []
        if self.flexible:
            arrays = [item for item in self.pending if isinstance(item, _Numbers)]
            conditions += [f"{item.length} <= {ONE_BYTE_VARINT_MAX}" for item in arrays]
        whole = f"{self.put}({self.packed([*self.pending, *more])})"
        if not conditions:
            self.line(whole)
        else:
            self.line(f"if {' and '.join(conditions)}: {whole}")
            self.line("else:")
            self.depth += 1
            self.write_one_by_one()
            for line in otherwise or []:
                self.line(line)
            self.depth -= 1
        self.pending = []

    def write_one_by_one(self) -> None:
        fixed: list[_Pending] = []
        for item in self.pending:
            if isinstance(item, _Fixed):
                fixed.append(item)
                continue
            if fixed:
                self.line(f"{self.put}({self.packed(fixed)})")
                fixed = []
            table = self.bind("pack", _Packers(f">%d{item.code}"))
            self.line(f"{self.put}(uvarint({item.length}))")
            self.line(f"{self.put}({table}[len({item.items}),](*{item.items}))")
        if fixed:
            self.line(f"{self.put}({self.packed(fixed)})")

    def struct(self, cls: type[Struct], variable: str, path: str) -> None:
        tagged = []
        for field in fields_of(cls):
            value = f"{variable}.{field.name}"
            where = f"'{path}.{field.name}', {self.version}"
            if not field.in_version(self.version):
                if not field.spec.ignorable:
                    self.line(f"if {value} != {self.default(field)}: raise refuse({where})")
            elif field.tagged_in(self.version):
                tagged.append(field)
            else:
                self.value(field, value, f"{path}.{field.name}")
        unknown = f"{variable}.unknown_tags"
        if not self.flexible:
            self.line(f"if {unknown}: raise refuse('{path}.unknown_tags', {self.version})")
        elif tagged:
            self.tags(tagged, variable, path)
        else:
            self.write([_Fixed("B", "0")], f"{unknown} is None", [f"{self.put}(tag_section([], {unknown}))"])

    def tags(self, tagged: list[Field], variable: str, path: str) -> None:
        self.flush()
        sections, outer = self.new_name("tags"), self.put
        self.line(f"{sections} = []")
        for field in sorted(tagged, key=lambda field: field.spec.tag or 0):
            value = f"{variable}.{field.name}"
            default = self.default(field)
            self.line(f"if {value} is not None:" if default == "None" else f"if {value} != {default}:")
            self.depth += 1
            chunks = self.new_name("chunks")
            self.put = self.new_name("put")
            self.line(f"{chunks} = []; {self.put} = {chunks}.append")
            self.value(field, value, f"{path}.{field.name}")
            self.flush()
            self.line(f"{sections}.append(({field.spec.tag}, b''.join({chunks})))")
            self.depth -= 1
        self.put = outer
        self.line(f"{self.put}(tag_section({sections}, {variable}.unknown_tags))")

    def value(self, field: Field, value: str, path: str) -> None:
        nullable = field.nullable_in(self.version)
        if field.array:
            self.array(field, value, path, nullable)
        elif field.struct is not None:
            self.nested(field.struct, value, path, nullable, field.tagged_in(self.version))
        else:
            assert field.kind is not None
            self.scalar(field.kind, value, path, nullable, self.flexible and not field.spec.legacy)

    def scalar(self, kind: Kind, value: str, path: str, nullable: bool, compact: bool) -> None:
        if kind.name == "uuid":
            # `struct` would pad or cut what has another length.
            uuid = self.new_name("uuid")
            self.line(f"{uuid} = {value}")
            self.line(f"if len({uuid}) != {UUID_BYTES}: raise refuse('{path}', {self.version})")
            self.pending.append(_Fixed(kind.code, uuid))
        elif kind.code:
            self.pending.append(_Fixed(kind.code, value))
        else:
            self.sized(kind, value, path, nullable, compact)

    def sized(self, kind: Kind, value: str, path: str, nullable: bool, compact: bool) -> None:
        """A string, bytes or records: the length, then the bytes as they are."""
        data, length = self.new_name("data"), self.new_name("length")
        is_string = kind.name == "string"
        size = f"len({data}){' + 1' if compact else ''}"
        if nullable:
            self.line(f"{data} = {value}")
            self.line(f"if {data} is None: {length} = {0 if compact else -1}; {data} = b''")
            self.line(f"else: {f'{data} = {data}.encode(); ' if is_string else ''}{length} = {size}")
        else:
            self.line(f"{data} = {value}{'.encode()' if is_string else ''}")
            self.line(f"{length} = {size}")
        if compact:
            self.compact_length(length, path, STRING_BYTES_MAX if is_string else 0)
        else:
            self.pending.append(_Fixed("h" if is_string else "i", length))
            self.flush()
        self.line(f"{self.put}({data})")

    def compact_length(self, length: str, path: str, limit: int = 0) -> None:
        otherwise = [f"{self.put}(uvarint({length}))"]
        if limit:
            otherwise.insert(0, f"if {length} > {limit + 1}: raise refuse('{path}', {self.version})")
        self.write([_Fixed("B", length)], f"{length} <= {ONE_BYTE_VARINT_MAX}", otherwise)

    def array(self, field: Field, value: str, path: str, nullable: bool) -> None:
        items, length = self.new_name("items"), self.new_name("length")
        size = f"len({items}){' + 1' if self.flexible else ''}"
        self.line(f"{items} = {value}")
        if nullable:
            self.line(f"if {items} is None: {length} = {0 if self.flexible else -1}; {items} = ()")
            self.line(f"else: {length} = {size}")
        else:
            self.line(f"{length} = {size}")
        if field.kind is not None and field.kind.code and field.kind.name != "uuid":
            self.pending.append(_Numbers(field.kind.code, items, length))
            return
        if self.flexible:
            self.compact_length(length, path)
        else:
            self.pending.append(_Fixed("i", length))
            self.flush()
        item = self.new_name("item")
        self.line(f"for {item} in {items}:")
        self.depth += 1
        if field.struct is not None:
            self.struct(field.struct, item, path)
        else:
            assert field.kind is not None
            self.scalar(field.kind, item, path, False, self.flexible)
        self.flush()
        self.depth -= 1

    def nested(self, cls: type[Struct], value: str, path: str, nullable: bool, tagged: bool) -> None:
        inner = self.new_name("inner")
        self.line(f"{inner} = {value}")
        if not nullable:
            self.struct(cls, inner, path)
            return
        self.flush()
        self.line(f"if {inner} is None: {self.put}({(NULL_TAGGED_STRUCT if tagged else NULL_STRUCT)!r})")
        self.line("else:")
        self.depth += 1
        self.pending.append(_Fixed("b", "1"))
        self.struct(cls, inner, path)
        self.flush()
        self.depth -= 1


def _refuse(path: str, version: int) -> ValueError:
    return ValueError(f"v{version} cannot carry the value of {path}")


def _tag_section(tagged: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> bytes:
    """The tagged fields of a struct in the order of their tags, those nobody declared among them."""
    if unknown:
        declared = {tag for tag, _ in tagged}
        if not declared.isdisjoint(unknown):
            raise ValueError(f"tags {sorted(declared & unknown.keys())} are declared fields, not unknown ones")
        tagged = sorted([*tagged, *unknown.items()])
    chunks = [uvarint(len(tagged))]
    for tag, data in tagged:
        chunks += (uvarint(tag), uvarint(len(data)), data)
    return b"".join(chunks)
