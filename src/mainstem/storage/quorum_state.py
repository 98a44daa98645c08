"""`quorum-state`: the election state of the metadata quorum, as JSON beside its log (KIP-595, KIP-853).

    {"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

Written whole and durably before the election it describes has any effect (R2). A quorum whose voters are not in the
log (`kraft.version` 0) keeps version 0, which has them here and no directory of the vote.
"""

import json
from collections.abc import Sequence
from typing import Final

from mainstem.core.raft.election import NOBODY, ElectionState
from mainstem.protocol.primitives import ZERO_UUID
from mainstem.protocol.uuids import uuid_from_text, uuid_to_text
from mainstem.storage.checkpoint import MalformedFileError, read_file, write_file_durably
from mainstem.storage.fs import FileSystem

NAME: Final = "quorum-state"
VERSION: Final = 1


def read_quorum_state(fs: FileSystem, folder: str) -> ElectionState | None:
    """None where this node never took part in an election."""
    path = f"{folder}/{NAME}"
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        return None
    return parse_quorum_state(path, data)


def write_quorum_state(
    fs: FileSystem, folder: str, state: ElectionState, static_voters: Sequence[int] | None = None
) -> None:
    """Returns when it is durable; `static_voters` are those of a quorum that has none in its log. Blocks."""
    write_file_durably(fs, f"{folder}/{NAME}", format_quorum_state(state, static_voters))


def format_quorum_state(state: ElectionState, static_voters: Sequence[int] | None = None) -> bytes:
    if static_voters is not None:
        old = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in static_voters],
            "data_version": 0,
        }
        return json.dumps(old, separators=(",", ":")).encode()
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": uuid_to_text(state.voted_directory_id),
        "data_version": VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_quorum_state(path: str, data: bytes) -> ElectionState:
    try:
        found = json.loads(data)
        version = found["data_version"]
        if version not in (0, VERSION):
            raise MalformedFileError(path, f"version {version}; 0 and {VERSION} are known")
        directory = found.get("votedDirectoryId")
        return ElectionState(
            leader_id=_number(found["leaderId"]),
            epoch=_number(found["leaderEpoch"]),
            voted_id=_number(found.get("votedId", NOBODY)),
            voted_directory_id=ZERO_UUID if directory is None else uuid_from_text(directory),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # A lost vote could be cast twice: never go on without it.
        raise MalformedFileError(path, f"not an election state: {error}") from error


def _number(value: object) -> int:
    if type(value) is not int or not -1 <= value <= 0x7FFFFFFF:
        raise ValueError(f"{value!r} is not a node id or an epoch")
    return value
