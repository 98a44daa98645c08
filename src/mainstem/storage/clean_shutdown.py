"""`.kafka_cleanshutdown`: proof that all logs of a directory were closed and synced, with the epoch of who did it.

Written last at a clean stop and removed, durably, before the first log is loaded: a crash while loading must not look
clean at the next start (D7, KAFKA-10471). The broker epoch goes to the controller at registration, which then knows
that no unsynced data was lost since (KIP-966); without the file it is -1.

A log that is damaged cannot be closed so, and says nothing of its neighbours. A file of ours beside the marker names
such logs, with their recovery points: the next start takes the others as they are and recovers these. In Kafka's own
shutdown a log that cannot be loaded takes its whole directory along, and there is no marker; a Kafka that starts on the
directory reads the marker alone, so what these logs have written is synced before it.
"""

import json
from dataclasses import dataclass
from typing import Final

from mainstem.storage.checkpoint import read_file, write_file_durably
from mainstem.storage.fs import FileSystem

NAME: Final = ".kafka_cleanshutdown"
UNCLEAN_LOGS: Final = "unclean-log-checkpoint"
"""Written before the marker, and worth nothing without it."""
VERSION: Final = 0
NO_BROKER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class PreviousStop:
    clean: bool
    broker_epoch: int


UNCLEAN: Final = PreviousStop(clean=False, broker_epoch=NO_BROKER_EPOCH)


def write_marker(fs: FileSystem, folder: str, broker_epoch: int) -> None:
    """Only after every log of the directory was closed and its checkpoints written."""
    text = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_file_durably(fs, f"{folder}/{NAME}", text.encode())


def take_marker(fs: FileSystem, folder: str) -> PreviousStop:
    """How the last run ended. The marker is gone for good when this returns."""
    path = f"{folder}/{NAME}"
    data: bytes | None = None
    try:
        data = read_file(fs, path)
        fs.remove(path)
    except FileNotFoundError:
        pass
    # Without one, too: a start that was killed may have removed it, and a power loss would bring it back.
    fs.sync_directory(folder)
    return UNCLEAN if data is None else parse_marker(data)


def parse_marker(data: bytes) -> PreviousStop:
    """A marker we cannot read proves nothing, so the stop counts as unclean: recovery is slower, never wrong.

    One exception: releases before 3.7 left the file empty.
    """
    if not data:
        return PreviousStop(clean=True, broker_epoch=NO_BROKER_EPOCH)
    try:
        found = json.loads(data)
        if found["version"] != VERSION:
            return UNCLEAN
        return PreviousStop(clean=True, broker_epoch=int(found["brokerEpoch"]))
    except (ValueError, KeyError, TypeError):
        return UNCLEAN
