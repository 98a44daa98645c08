"""Makes the functions that read and write one version of a message from its declaration.

Each (message, version) gets straight-line Python, made when first used: nested structs are written out in place,
neighbours of fixed width share one `struct` call together with the length that follows them, and an array of
numbers is one call with its length and what stands before it. Nothing about versions is decided while a message is
read or written.

Rules for reading what a peer sent:
- A length is checked against the bytes left before anything is made from it, so no more is allocated than the frame
  can hold; -1 (0 in compact lengths) is null where the version allows it, and an error elsewhere.
- Only `DECODE_FAULTS` and RemoteError come out, and `Message` turns the first into the second.
- Strings that are not UTF-8 have the offending bytes replaced, as Java does it: no peer can fail a request so.
"""

from __future__ import annotations

import linecache
import struct
import sys
from collections.abc import Callable
from types import NoneType
from typing import Any, Final, get_args, get_origin

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fields import MISSING, FieldSpec, Kind, Struct, parse_versions
from mainstem.protocol.primitives import UUID_BYTES, read_uvarint, uvarint

ENCODE_FAULTS: Final = (struct.error, AttributeError, TypeError)
DECODE_FAULTS: Final = (struct.error, IndexError)
STRING_BYTES_MAX: Final = 0x7FFF
REMEMBERED_ARRAY_MAX: Final = 256
ONE_BYTE_VARINT_MAX: Final = 127

Encoder = Callable[[Any, Callable[[bytes], None]], None]
Decoder = Callable[[bytes, int], tuple[Any, int]]


class Field:
    """A declared field with its annotation and versions understood."""

    __slots__ = ("array", "first", "kind", "last", "name", "nullable", "optional", "spec", "struct", "tagged")

    def __init__(self, name: str, spec: FieldSpec, annotation: Any) -> None:
        self.name = name
        self.spec = spec
        self.first, self.last = parse_versions(spec.versions)
        options = [option for option in get_args(annotation) if option is not NoneType]
        self.optional = NoneType in get_args(annotation)
        inner = options[0] if self.optional else annotation
        self.array = get_origin(inner) is list
        if self.array:
            inner = get_args(inner)[0]
        metadata = getattr(inner, "__metadata__", None)
        self.kind: Kind | None = metadata[0] if metadata else None
        self.struct: type[Struct] | None = None if metadata else inner
        nullable = spec.nullable if spec.nullable is not None else spec.versions if self.optional else "none"
        self.nullable = parse_versions(nullable)
        tagged = spec.tagged if spec.tagged is not None else spec.versions if spec.tag is not None else "none"
        self.tagged = parse_versions(tagged)

    def in_version(self, version: int) -> bool:
        return self.first <= version <= self.last

    def nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def tagged_in(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]


_fields: dict[type, list[Field]] = {}


def fields_of(cls: type[Struct]) -> list[Field]:
    """The fields of `cls` as declared, in the order in which they are written."""
    known = _fields.get(cls)
    if known is None:
        names = vars(sys.modules[cls.__module__])
        known = [Field(name, spec, eval(cls.__annotations__[name], names)) for name, spec in cls.FIELDS.items()]
        _fields[cls] = known
    return known


def make_encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    return _EncoderSource(cls, version, flexible).function


def make_decoder(cls: type[Struct], version: int, flexible: bool) -> Decoder:
    return _DecoderSource(cls, version, flexible).function


class _Tables(dict[int, Callable[..., Any]]):
    """`struct` functions for a prefix and an array of n numbers, by n; only short arrays are remembered."""

    __slots__ = ("code", "method", "prefix")

    def __init__(self, prefix: str, code: str, method: str) -> None:
        self.prefix = prefix
        self.code = code
        self.method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(struct.Struct(f">{self.prefix}{count}{self.code}"), self.method)
        if count <= REMEMBERED_ARRAY_MAX:
            self[count] = function
        return function


class _Source:
    """Lines of a function under construction, and the names that it uses."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.pending: list[tuple[str, str]] = []
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def new_name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def bind(self, stem: str, value: object) -> str:
        """A name in the function's globals for `value`."""
        name = self.new_name(stem)
        self.scope[name] = value
        return name

    def default(self, field: Field) -> str:
        """An expression for the default of `field`, good for comparing."""
        if field.spec.required:
            raise TypeError(f"{self.cls.__name__}: {field.name} is not in v{self.version} and has no default")
        value = field.spec.make_default()
        return repr(value) if isinstance(value, int | str | bytes | NoneType) else self.bind("default", value)

    def make(self, kind: str, signature: str) -> Any:
        name = f"{kind}_{self.cls.__name__}_v{self.version}"
        source = f"def {name}({signature}):\n" + "\n".join(self.lines) + "\n"
        filename = f"<{kind} {self.cls.__qualname__} v{self.version}>"
        # So that a traceback shows the line of a function that is in no file.
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), self.scope)
        return self.scope[name]


class _EncoderSource(_Source):
    """`encode(message, put)`: calls `put` with the pieces of the message in order."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.scope.update(uvarint=uvarint, tag_section=_tag_section, refuse=_refuse)
        self.put = "put"
        self.struct(cls, "message", cls.__name__)
        self.flush()
        self.line("return")
        self.function: Encoder = self.make("encode", "message, put")

    def packed(self, items: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in items)
        if all(expression.lstrip("-").isdigit() for _, expression in items):
            return repr(struct.pack(f">{codes}", *(int(expression) for _, expression in items)))
        name = f"pack_{codes.replace('?', 'o')}"
        self.scope.setdefault(name, struct.Struct(f">{codes}").pack)
        return f"{name}({', '.join(expression for _, expression in items)})"

    def flush(self) -> None:
        if self.pending:
            self.line(f"{self.put}({self.packed(self.pending)})")
            self.pending = []

    def struct(self, cls: type[Struct], variable: str, path: str) -> None:
        tagged = []
        for field in fields_of(cls):
            value = f"{variable}.{field.name}"
            if not field.in_version(self.version):
                if not field.spec.ignorable:
                    self.line(
                        f"if {value} != {self.default(field)}: raise refuse('{path}.{field.name}', {self.version})"
                    )
            elif field.tagged_in(self.version):
                tagged.append(field)
            else:
                self.value(field, value, f"{path}.{field.name}")
        if self.flexible:
            self.tags(tagged, variable, path)
        else:
            self.line(f"if {variable}.unknown_tags: raise refuse('{path}.unknown_tags', {self.version})")

    def tags(self, tagged: list[Field], variable: str, path: str) -> None:
        if not tagged:
            self.line(f"if {variable}.unknown_tags is None:")
            self.line(f"    {self.put}({self.packed([*self.pending, ('B', '0')])})")
            self.line("else:")
            self.depth += 1
            self.flush()
            self.line(f"{self.put}(tag_section([], {variable}.unknown_tags))")
            self.depth -= 1
            return
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
            self.nested(field.struct, value, path, nullable)
        else:
            assert field.kind is not None
            self.scalar(field.kind, value, path, nullable, self.flexible and not field.spec.legacy)

    def scalar(self, kind: Kind, value: str, path: str, nullable: bool, compact: bool) -> None:
        if kind.name == "uuid":
            uuid = self.new_name("uuid")
            self.line(f"{uuid} = {value}")
            self.line(f"if len({uuid}) != {UUID_BYTES}: raise refuse('{path}', {self.version})")
            self.pending.append((kind.code, uuid))
        elif kind.code:
            self.pending.append((kind.code, value))
        else:
            data, length = self.new_name("data"), self.new_name("length")
            convert = ".encode()" if kind.name == "string" else ""
            if nullable:
                self.line(f"{data} = {value}")
                self.line(f"if {data} is None: {length} = {0 if compact else -1}; {data} = b''")
                convert = f"{data} = {data}.encode(); " if convert else ""
                self.line(f"else: {convert}{length} = len({data}){' + 1' if compact else ''}")
            else:
                self.line(f"{data} = {value}{convert}")
                self.line(f"{length} = len({data}){' + 1' if compact else ''}")
            if compact:
                limit = STRING_BYTES_MAX if kind.name == "string" else 0
                self.compact_length(length, path, limit)
            else:
                self.pending.append(("h" if kind.name == "string" else "i", length))
                self.flush()
            self.line(f"{self.put}({data})")

    def compact_length(self, length: str, path: str, limit: int = 0) -> None:
        """Writes what is pending and a varint: in one call while that is a single byte."""
        self.line(f"if {length} <= {ONE_BYTE_VARINT_MAX}: {self.put}({self.packed([*self.pending, ('B', length)])})")
        self.line("else:")
        self.depth += 1
        if limit:
            self.line(f"if {length} > {limit + 1}: raise refuse('{path}', {self.version})")
        self.flush()
        self.line(f"{self.put}(uvarint({length}))")
        self.depth -= 1
        self.pending = []

    def array(self, field: Field, value: str, path: str, nullable: bool) -> None:
        items, length = self.new_name("items"), self.new_name("length")
        extra = " + 1" if self.flexible else ""
        self.line(f"{items} = {value}")
        if nullable:
            self.line(f"if {items} is None: {length} = {0 if self.flexible else -1}; {items} = ()")
            self.line(f"else: {length} = len({items}){extra}")
        else:
            self.line(f"{length} = len({items}){extra}")
        if field.kind is not None and field.kind.code and field.kind.name != "uuid":
            self.numbers(field.kind, items, length)
            return
        if self.flexible:
            self.compact_length(length, path)
        else:
            self.pending.append(("i", length))
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

    def numbers(self, kind: Kind, items: str, length: str) -> None:
        """An array of numbers, its length and what is pending, in one call."""
        before = [*self.pending, ("B" if self.flexible else "i", length)]
        table = self.bind("pack", _Tables("".join(code for code, _ in before), kind.code, "pack"))
        together = f"{self.put}({table}[len({items})]({', '.join(value for _, value in before)}, *{items}))"
        if not self.flexible:
            self.line(together)
        else:
            alone = self.bind("pack", _Tables("", kind.code, "pack"))
            self.line(f"if {length} <= {ONE_BYTE_VARINT_MAX}: {together}")
            self.line("else:")
            self.depth += 1
            self.flush()
            self.line(f"{self.put}(uvarint({length})); {self.put}({alone}[len({items})](*{items}))")
            self.depth -= 1
        self.pending = []

    def nested(self, cls: type[Struct], value: str, path: str, nullable: bool) -> None:
        inner = self.new_name("inner")
        self.line(f"{inner} = {value}")
        if not nullable:
            self.struct(cls, inner, path)
            return
        self.flush()
        self.line(f"if {inner} is None: {self.put}(b'\\xff')")
        self.line("else:")
        self.depth += 1
        self.pending.append(("b", "1"))
        self.struct(cls, inner, path)
        self.flush()
        self.depth -= 1


class _DecoderSource(_Source):
    """`decode(data, at)`: the message at a position, and the position after it."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.scope.update(read_uvarint=read_uvarint, short=_short)
        self.line("end = len(data)")
        message = self.new_name("message")
        self.struct(cls, message, cls.__name__)
        self.flush()
        self.line(f"return {message}, at")
        self.function: Decoder = self.make("decode", "data, at")

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
            self.nested(field.struct, target, path, nullable)
        else:
            assert field.kind is not None
            self.scalar(field.kind, target, path, nullable, self.flexible and not field.spec.legacy)

    def length(self, code: str, compact: bool, limit: str = "") -> str:
        """Reads a length together with what is pending before it; one more than it where it is compact."""
        length = self.new_name("length")
        self.pending.append(("B" if compact else code, length))
        self.flush()
        if compact:
            self.line(f"if {length} > {ONE_BYTE_VARINT_MAX}: {length}, at = read_uvarint(data, at - 1){limit}")
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
            if field.kind.name == "uuid":
                self.line(f"{target} = [data[i : i + {UUID_BYTES}] for i in range(at, {stop}, {UUID_BYTES})]")
            else:
                table = self.bind("unpack", _Tables("", field.kind.code, "unpack_from"))
                self.line(f"{target} = list({table}[{length}](data, at))")
            self.line(f"at = {stop}")
        else:
            # Each element takes a byte at least, so that more of them than bytes cannot be meant.
            self.line(f"if {length} < 0 or {length} > end - at: raise short('{path}', {length}, end - at)")
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

    def nested(self, cls: type[Struct], target: str, path: str, nullable: bool) -> None:
        inner = self.new_name("inner")
        if nullable:
            marker = self.new_name("marker")
            self.pending.append(("b", marker))
            self.flush()
            self.line(f"if {marker} < 0: {target} = None")
            self.line("else:")
            self.depth += 1
        self.struct(cls, inner, path)
        self.flush()
        self.line(f"{target} = {inner}")
        if nullable:
            self.depth -= 1


def _refuse(path: str, version: int) -> ValueError:
    return ValueError(f"v{version} cannot carry the value of {path}")


def _short(path: str, wanted: int, left: int) -> RemoteError:
    return RemoteError(ErrorCode.CORRUPT_MESSAGE, f"{path} says it has {wanted} where {left} bytes are left")


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


def explain(message: Struct, version: int, fault: Exception) -> ValueError:
    """What to tell whoever tried to encode `message`: which field is wrong, where it can be told."""
    path = _find_fault(message, version, type(message).__name__)
    return ValueError(f"v{version} cannot carry the value of {path}" if path else f"{message!r}: {fault}")


def _find_fault(value: Struct, version: int, path: str) -> str:
    for field in fields_of(type(value)):
        if not field.in_version(version):
            continue
        where = f"{path}.{field.name}"
        content = getattr(value, field.name)
        if content is None:
            if not field.nullable_in(version):
                return where
            continue
        if field.array and not isinstance(content, list | tuple):
            return where
        for item in content if field.array else (content,):
            if field.struct is not None:
                wrong = _find_fault(item, version, where) if isinstance(item, field.struct) else where
            else:
                assert field.kind is not None
                wrong = "" if _fits(field.kind, item) else where
            if wrong:
                return wrong
    return ""


def _fits(kind: Kind, value: Any) -> bool:
    if not kind.code:
        if kind.name == "string":
            return isinstance(value, str) and len(value.encode()) <= STRING_BYTES_MAX
        return isinstance(value, bytes | bytearray | memoryview)
    try:
        struct.pack(f">{kind.code}", value)
    except struct.error:
        return False
    return True
