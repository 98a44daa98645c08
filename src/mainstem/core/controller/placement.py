"""Where the replicas of new partitions go: chosen by the controller, or given by hand and checked.

Replicas are striped over the brokers, unfenced ones first, so that leaders and followers spread evenly; consecutive
partitions begin one broker further on, and the shift grows with each round, so that two brokers share few partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.core.controller.context import Context
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.metadata_records import PartitionRecord


def place(context: Context, first: int, partitions: int, replication_factor: int) -> list[list[int]]:
    """Replicas for partitions `first` to `first + partitions`; RemoteError where there are too few brokers."""
    brokers = context.image.brokers
    usable = [
        broker_id
        for broker_id, broker in sorted(brokers.items())
        if not broker.log_dirs or set(broker.log_dirs) - set(broker.cordoned_log_dirs or ())
    ]
    unfenced = [broker_id for broker_id in usable if not brokers[broker_id].fenced]
    why = ""
    if replication_factor > len(usable):
        why = (
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
    elif not unfenced:
        why = "All brokers are currently fenced or have all their log directories cordoned."
    if why:
        raise RemoteError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {why}",
        )
    fenced = [broker_id for broker_id in usable if brokers[broker_id].fenced]
    placed = []
    # New topics begin at different brokers, so that many small ones spread as well.
    start = len(context.image.topics)
    for index in range(first, first + partitions):
        at = start + index
        shift = 1 + at // len(unfenced) % max(1, len(unfenced) - 1)
        leader = at % len(unfenced)
        replicas = [unfenced[leader]]
        for step in range(len(unfenced) - 1):
            follower = unfenced[(leader + shift + step) % len(unfenced)]
            if follower not in replicas:
                replicas.append(follower)
        replicas += [broker_id for broker_id in unfenced if broker_id not in replicas] + fenced
        placed.append(replicas[:replication_factor])
    return placed


def check_assignment(context: Context, replicas: Sequence[int], replication_factor: int | None) -> None:
    """RemoteError unless these replicas can be assigned by hand."""
    if not replicas:
        raise _refused("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in context.image.brokers:
            raise _refused(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id == previous:
            raise _refused(f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def new_partition(context: Context, topic_id: bytes, index: int, replicas: Sequence[int]) -> PartitionRecord:
    """A partition's first record; RemoteError where none of its brokers is active."""
    in_sync = [broker_id for broker_id in replicas if context.is_active(broker_id)]
    if not in_sync:
        raise _refused(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=in_sync,
        removing_replicas=[],
        adding_replicas=[],
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[context.default_directory(one) for one in replicas] if context.has_directories else [],
    )


def _refused(message: str) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
