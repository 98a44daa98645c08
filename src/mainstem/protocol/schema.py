"""The small language that messages are declared in: one class per message, for all of its versions.

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        name: Str | None = field("0+", nullable="10+")

    class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
        topics: list[MetadataRequestTopic] | None = field("0+", nullable="1+")
        allow_auto_topic_creation: Bool = field("4+", default=True)

Rules of the language:
- A `Struct` is made of fields; a `Message` is a struct that stands alone, with the versions it has and the first of
  them that is flexible (compact lengths and tagged fields, KIP-482).
- `field(versions)` says where a field exists. A field that some version of its message lacks has a default; one
  that every version has may be required instead. `nullable` says where it may be null (everywhere it exists, when
  only the type says `| None`), `tag` makes it a tagged field, written only when it differs from its default.
- Encoding in a version that lacks a field drops an `ignorable` one and raises ValueError for another that is not
  its default; so does a null that the version cannot carry. Decoding fills in the defaults.
- Tagged fields nobody declared are kept in `unknown_tags` and written again.

The parts of a declaration are in `fields`, which makes declaring cheap; `encoder` and `decoder` make the functions for
a version of a message when it is first written or read. The semantics are those of Kafka's own generated classes.
"""

from __future__ import annotations

from typing import ClassVar, Self

from mainstem.protocol import codec
from mainstem.protocol.decoder import make_decoder
from mainstem.protocol.encoder import make_encoder
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fields import (
    VERSION_MAX,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Str,
    Struct,
    Uint16,
    Uint32,
    Uuid,
    field,
    parse_versions,
)
from mainstem.protocol.primitives import ELEMENTS_MAX, ZERO_UUID

__all__ = [
    "ZERO_UUID",
    "Bool",
    "Bytes",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "Str",
    "Struct",
    "Uint16",
    "Uint32",
    "Uuid",
    "field",
]


class Message(Struct):
    """A struct that stands alone: what a frame, a record's key or a record's value holds."""

    __slots__ = ()

    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE_FROM: ClassVar[int] = VERSION_MAX
    """The first flexible version; larger than any version where there is none."""
    _encoders: ClassVar[dict[int, codec.Encoder]]
    _decoders: ClassVar[dict[int, codec.Decoder]]

    def __init_subclass__(cls, *, versions: str, flexible: str, api_key: int = -1) -> None:
        cls.API_KEY = api_key
        cls._encoders = {}
        cls._decoders = {}
        cls.MIN_VERSION, cls.MAX_VERSION = parse_versions(versions)
        if flexible != "none":
            cls.FLEXIBLE_FROM = parse_versions(flexible)[0]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return version >= cls.FLEXIBLE_FROM

    def encode(self, version: int) -> bytes:
        """This message as `version` writes it; ValueError when that version cannot carry it."""
        chunks: list[bytes] = []
        self.encode_into(chunks, version)
        return b"".join(chunks)

    def encode_into(self, chunks: list[bytes], version: int) -> None:
        """Appends what `encode` returns in pieces, for who joins or sends them with others."""
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = make_encoder(type(self), self._checked(version), self.is_flexible(version))
            self._encoders[version] = encoder
        try:
            encoder(self, chunks.append)
        except codec.ENCODE_FAULTS as fault:
            raise codec.explain(self, version, fault) from fault

    @classmethod
    def decode(cls, data: bytes, version: int, position: int = 0, elements_max: int = ELEMENTS_MAX) -> Self:
        """The message at `position`; RemoteError when `data` does not hold one, or its arrays more than `elements_max`.

        Bytes after the message are let pass, as Kafka lets them pass after a request or a response; who must
        know takes `decode_from`.
        """
        return cls.decode_from(data, version, position, elements_max)[0]

    @classmethod
    def decode_from(
        cls, data: bytes, version: int, position: int = 0, elements_max: int = ELEMENTS_MAX
    ) -> tuple[Self, int]:
        """The message at `position`, and the position after it."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            decoder = make_decoder(cls, cls._checked(version), cls.is_flexible(version))
            cls._decoders[version] = decoder
        try:
            message, end = decoder(data, position, elements_max)
        except codec.DECODE_FAULTS as fault:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"{cls.__name__} v{version}: {fault}") from None
        return message, end

    @classmethod
    def _checked(cls, version: int) -> int:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}")
        return version
