"""What declarations are made of: the aliases for Kafka's types, `field` and `Struct`; and what a field then means.

The language itself is described in `schema`, from which declarations import all of this.

Declaring is cheap, so that importing a module of messages is: the fields of a class become slots and what was said
about them is kept as written. Annotations are evaluated and versions parsed by `fields_of`, when a codec is made; the
`__init__` of a class is made with its first instance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, ClassVar, Final, dataclass_transform, get_args, get_origin

from mainstem.protocol.primitives import UUID_BYTES
from mainstem.protocol.uuids import uuid_to_text


class Kind:
    """What an alias below stands for on the wire; `code` is its `struct` code when its width is fixed."""

    __slots__ = ("code", "name", "size", "zero")

    def __init__(self, name: str, code: str, size: int, zero: object) -> None:
        self.name = name
        self.code = code
        self.size = size
        self.zero = zero


Int8 = Annotated[int, Kind("int8", "b", 1, 0)]
Int16 = Annotated[int, Kind("int16", "h", 2, 0)]
Int32 = Annotated[int, Kind("int32", "i", 4, 0)]
Int64 = Annotated[int, Kind("int64", "q", 8, 0)]
Uint16 = Annotated[int, Kind("uint16", "H", 2, 0)]
Uint32 = Annotated[int, Kind("uint32", "I", 4, 0)]
Float64 = Annotated[float, Kind("float64", "d", 8, 0.0)]
Bool = Annotated[bool, Kind("bool", "?", 1, False)]
Uuid = Annotated[bytes, Kind("uuid", "16s", 16, bytes(16))]
Str = Annotated[str, Kind("string", "", 0, "")]
Bytes = Annotated[bytes, Kind("bytes", "", 0, b"")]
Records = Annotated[bytes, Kind("records", "", 0, None)]

MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()
VERSION_MAX: Final = 0x7FFF
SHOWN_BYTES_MAX: Final = 24


class FieldSpec:
    """What a declaration says about one field, as it was written."""

    __slots__ = ("default", "default_factory", "ignorable", "legacy", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        versions: str,
        default: Any,
        default_factory: Any,
        nullable: str | None,
        tag: int | None,
        tagged: str | None,
        ignorable: bool,
        legacy: bool,
    ) -> None:
        self.versions = versions
        self.default = default
        self.default_factory = default_factory
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable
        self.legacy = legacy

    @property
    def required(self) -> bool:
        return self.default is MISSING and self.default_factory is MISSING

    def make_default(self) -> Any:
        assert not self.required
        return self.default if self.default_factory is MISSING else self.default_factory()


def field(
    versions: str,
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] = MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    legacy: bool = False,
) -> Any:
    """One field: the versions that have it, and what else there is to say (see the module).

    `tagged` narrows the versions in which a field with a `tag` is a tagged one; `legacy` keeps the old lengths in
    flexible versions too, which only the client id of a request header does.
    """
    return FieldSpec(versions, default, default_factory, nullable, tag, tagged, ignorable, legacy)


def parse_versions(text: str) -> tuple[int, int]:
    """`"3-9"`, `"3+"`, `"3"` or `"none"` as first and last version; the last of `none` lies before its first."""
    if text == "none":
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class StructMeta(type):
    """Turns the fields of a declaration into slots and keeps what was said about them in `FIELDS`."""

    FIELDS: dict[str, FieldSpec]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: object) -> StructMeta:
        fields = {key: value for key, value in namespace.items() if type(value) is FieldSpec}
        for key in fields:
            del namespace[key]
        if "__slots__" not in namespace:
            namespace["__slots__"] = tuple(fields)
        namespace["FIELDS"] = fields
        return super().__new__(mcs, name, bases, namespace, **options)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(metaclass=StructMeta):
    """A group of fields inside a message. Made by keyword, compared by value, changed freely."""

    __slots__ = ("unknown_tags",)

    FIELDS: ClassVar[dict[str, FieldSpec]]
    unknown_tags: dict[int, bytes] | None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        # The first instance of a class pays for making its real __init__; an import does not.
        cls = type(self)
        _install_init(cls)
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        values = _values_of(type(self))
        return bool(values(self) == values(other))

    def __repr__(self) -> str:
        shown = []
        for name, spec in type(self).FIELDS.items():
            value = getattr(self, name)
            if spec.required or value != spec.make_default():
                shown.append(f"{name}={_show(value)}")
        if self.unknown_tags:
            shown.append(f"unknown_tags={_show(self.unknown_tags)}")
        return f"{type(self).__name__}({', '.join(shown)})"


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


_getters: dict[type, Callable[[Any], Any]] = {}


def _values_of(cls: type[Struct]) -> Callable[[Any], Any]:
    getter = _getters.get(cls)
    if getter is None:
        getter = _getters[cls] = attrgetter(*cls.FIELDS, "unknown_tags")
    return getter


def _show(value: object) -> str:
    if isinstance(value, bytes):
        if len(value) == UUID_BYTES:
            return f"<{uuid_to_text(value)}>"
        if len(value) > SHOWN_BYTES_MAX:
            return f"<{len(value)} bytes>"
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_show(item)}' for key, item in value.items())}}}"
    return repr(value)


def _install_init(cls: type[Struct]) -> None:
    """Gives `cls` an __init__ of its own, with a keyword for each field."""
    parameters, body = [], ["self.unknown_tags = None"]
    scope: dict[str, Any] = {"MISSING": MISSING}
    for name, spec in cls.FIELDS.items():
        if spec.required:
            parameters.append(name)
            body.append(f"self.{name} = {name}")
        elif spec.default_factory is MISSING:
            scope[f"default_{name}"] = spec.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
        else:
            scope[f"make_{name}"] = spec.default_factory
            parameters.append(f"{name}=MISSING")
            body.append(f"self.{name} = make_{name}() if {name} is MISSING else {name}")
    keywords = f", *, {', '.join(parameters)}" if parameters else ""
    source = f"def __init__(self{keywords}):\n    " + "\n    ".join(body)
    exec(source, scope)
    cls.__init__ = scope["__init__"]  # type: ignore[method-assign]
