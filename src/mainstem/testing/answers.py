"""Answers that carry nothing but an error, in the places where a client looks for it.

Most responses repeat what was asked, topic by topic and partition by partition, with an error code for each. So an
answer is made by walking the request beside the declaration of the response: where both have lists of structs, there
is an entry for each entry; fields that mean the same (a topic's name, a partition's number, a group's id) are copied;
an error code is put into the innermost entries that have a place for one, and into what is around them only where
there are no such entries, as in the later requests of a fetch session. Entries that nothing names (those of ACLs) are
answered in their order. Metadata names the broker besides, for clients take no answer without one.
"""

from __future__ import annotations

from typing import Any, Final

from mainstem.protocol.api import find_api
from mainstem.protocol.blank import blank
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.fields import Struct, fields_of
from mainstem.protocol.messages.k01_fetch import FetchResponse
from mainstem.protocol.messages.k03_metadata import MetadataResponse, MetadataResponseBroker
from mainstem.protocol.schema import Message

_SAME: Final = (
    {"name", "topic", "topic_name"},
    {"partition", "partition_index", "partition_id", "index"},
    {"group_id", "group", "key"},
    {"member_id"},
    {"group_instance_id"},
    {"topic_id"},
    {"resource_type"},
    {"resource_name"},
    {"transactional_id"},
    {"producer_id"},
)
_ABOUT_THE_SESSION: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Said of a fetch as a whole, whatever partitions it names."""
_CODES: Final = ("error_code", "partition_error_code")
_MEANING: Final = {name: number for number, names in enumerate(_SAME) for name in names}


def error_answer(request: Message, version: int, code: int, node_id: int, address: tuple[str, int]) -> Message | None:
    """The response to `request` that says `code`; `node_id` and `address` are those of the broker that gives it.

    None where something was asked for and the response has no place for an error: it would say that it was done.
    """
    answer, is_told = _mirror(find_api(request.API_KEY).response, request, version, code)
    if not is_told and any(_lists(request)):
        return None
    if isinstance(answer, MetadataResponse):
        host, port = address
        answer.brokers = [MetadataResponseBroker(node_id=node_id, host=host, port=port)]
        answer.controller_id = node_id
    if isinstance(answer, FetchResponse) and code in _ABOUT_THE_SESSION:
        answer.responses = []
        answer.error_code = code
    assert isinstance(answer, Message)
    return answer


def _mirror(cls: type[Struct], asked: object, version: int, code: int) -> tuple[Struct, bool]:
    """What is answered to `asked`, and whether the code is in it."""
    answer = blank(cls)
    given = {_MEANING[name]: getattr(asked, name) for name in _names(asked) if name in _MEANING}
    lists = _lists(asked)
    has_code = any(field.name in _CODES and field.in_version(version) for field in fields_of(cls))
    is_told = False
    for field in fields_of(cls):
        if not field.in_version(version):
            continue
        if field.array and field.struct is not None:
            entries = next((each for each in lists if _describes(each, field.struct)), None)
            if entries is None and not has_code and len(lists) == 1 and _is_nameless(field.struct):
                entries = lists[0]
            if entries is not None:
                struct = field.struct
                answered = [_mirror(struct, each, version, code) for each in entries]
                setattr(answer, field.name, [each for each, _ in answered])
                is_told = is_told or any(told for _, told in answered)
        elif not field.array and _MEANING.get(field.name, -1) in given:
            value = given[_MEANING[field.name]]
            if value is not None:
                setattr(answer, field.name, value)
    if isinstance(asked, str | int):
        _set_only_key(answer, asked)
    if not is_told:
        for field in fields_of(cls):
            if field.name in _CODES and field.in_version(version):
                setattr(answer, field.name, code)
                is_told = True
    return answer, is_told


def _names(asked: object) -> list[str]:
    return [field.name for field in fields_of(type(asked))] if isinstance(asked, Struct) else []


def _lists(asked: object) -> list[list[Any]]:
    return [value for value in (getattr(asked, name) for name in _names(asked)) if isinstance(value, list)]


def _is_nameless(struct: type[Struct]) -> bool:
    """Whether it tells an error, and not of what."""
    names = {field.name for field in fields_of(struct)}
    return not names.isdisjoint(_CODES) and names.isdisjoint(_MEANING)


def _describes(entries: list[Any], struct: type[Struct]) -> bool:
    """Whether each entry of a request gets one of these in the response."""
    if not entries:
        return False
    keys = {_MEANING[field.name] for field in fields_of(struct) if field.name in _MEANING}
    if not isinstance(entries[0], Struct):
        return isinstance(entries[0], str | int) and bool(keys)
    return bool(keys & {_MEANING[name] for name in _names(entries[0]) if name in _MEANING})


def _set_only_key(answer: Struct, asked: str | int) -> None:
    """A request that lists bare names or numbers: the entry is for that one."""
    for field in fields_of(type(answer)):
        if field.name in _MEANING and not field.array and isinstance(getattr(answer, field.name), type(asked)):
            setattr(answer, field.name, asked)
            return
