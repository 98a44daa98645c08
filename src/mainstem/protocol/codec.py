"""Functions made from declarations: what encoders and decoders have in common.

Each (message, version) gets straight-line Python, made when first used: nested structs are written out in place,
neighbours of fixed width share one `struct` call with the lengths and arrays of numbers between them, and nothing about
versions is decided while a message is read or written. `encoder` and `decoder` build on this module.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from types import NoneType
from typing import Any, Final

from mainstem.protocol.fields import Field, Kind, Struct, fields_of
from mainstem.protocol.primitives import STRING_BYTES_MAX

ENCODE_FAULTS: Final = (struct.error, AttributeError, TypeError)
"""What an encoder raises for a value that does not fit; `explain` finds the field."""
DECODE_FAULTS: Final = (struct.error, IndexError)
"""What a decoder raises, besides RemoteError, for data that ends too soon."""
ONE_BYTE_VARINT_MAX: Final = 127

Encoder = Callable[[Any, Callable[[bytes], None]], None]
Decoder = Callable[[bytes, int, int], tuple[Any, int]]


class Source:
    """Lines of a function under construction, and the names that it uses."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.depth = 1
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
