"""An error that a test asks for is told by every API, in every version; or at least nothing is said to be done."""

from typing import Any

import pytest

from mainstem.protocol.api import APIS, ApiKey, find_api
from mainstem.protocol.blank import blank
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.fields import Struct, fields_of
from mainstem.protocol.rpc import encode_response
from mainstem.testing.answers import error_answer

CODE = ErrorCode.POLICY_VIOLATION
WITHOUT_A_PLACE = {ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
"""What is asked for by folder is answered by topic, and what is asked for in two lists is answered in one."""
NOT_OF_CLIENTS = {ApiKey.FETCH_SNAPSHOT, ApiKey.SHARE_FETCH}


def filled(cls: type[Struct], version: int) -> Any:
    """A request with one entry in each list."""
    made = blank(cls)
    for field in fields_of(cls):
        if field.in_version(version) and field.array:
            samples = {"string": "name", "uuid": bytes(15) + b"1", "bytes": b""}
            entry = (
                filled(field.struct, version) if field.struct else samples.get(field.kind.name if field.kind else "", 3)
            )
            setattr(made, field.name, [entry])
    return made


def codes(answer: Any) -> list[int]:
    found: list[int] = []
    for field in fields_of(type(answer)):
        value = getattr(answer, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        for each in value if isinstance(value, list) else ():
            found += codes(each) if isinstance(each, Struct) else []
    return found


@pytest.mark.parametrize("key", [key for key in APIS if key not in NOT_OF_CLIENTS], ids=lambda key: APIS[key].name)
def test_every_api_tells_an_error_wherever_something_was_asked_for(key: int) -> None:
    api = find_api(key)
    for version in range(api.min_version, api.max_version + 1):
        answer = error_answer(filled(api.request, version), version, CODE, 1, ("127.0.0.1", 1))
        assert (answer is None) == (key in WITHOUT_A_PLACE)
        if answer is not None:
            assert CODE in codes(answer)
            encode_response(answer, version, 1)
