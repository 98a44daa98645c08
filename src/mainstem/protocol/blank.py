"""Messages with nothing in them but what every version must carry: zeros, empty strings and lists."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mainstem.protocol.fields import Kind, Struct

S = TypeVar("S", bound=Struct)


def blank(cls: type[S]) -> S:
    """An instance whose required fields are zero; for answers that carry nothing but an error."""
    hints = get_type_hints(cls, include_extras=True)
    return cls(**{name: _zero(hints[name]) for name, spec in cls.FIELDS.items() if spec.required})


def _zero(hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        # Empty rather than null, which not every version can carry.
        return _zero(get_args(hint)[0])
    if origin is list:
        return []
    if origin is Annotated:
        return next(part.zero for part in get_args(hint) if isinstance(part, Kind))
    return blank(hint)
