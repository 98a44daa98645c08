"""Who a forwarded request comes from, as Envelope carries it: preceded by its version (int16)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Message, Str, field


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: Str = field("0+")
    name: Str = field("0+")
    token_authenticated: Bool = field("0+")
