"""The coordinators of groups: which can be compared with their logs, after a step, and in which term each is."""

from mainstem.broker.app import Broker
from mainstem.broker.partition import Partition
from mainstem.core.group.machine import GroupMachine
from mainstem.protocol.java import coordinator_partition
from mainstem.sim.written import OFFSETS_TOPIC


def comparable(broker: Broker, changed: dict[int, None]) -> list[tuple[Partition, GroupMachine]]:
    """Of those whose logs have changed. One whose log has failed is taken out of `changed`: nobody can tell any more
    what is in it, as a write may have failed with all its bytes written."""
    found: list[tuple[Partition, GroupMachine]] = []
    for index in list(changed):
        shard = broker.groups.runtime.shards.get(index)
        if shard is None or not shard.is_serving or shard._open is not None:
            continue  # it loads, or has taken in what is not yet written
        partition = broker.partitions.get(OFFSETS_TOPIC, index)
        if partition is None or partition.log.failure is not None:
            del changed[index]
        else:
            found.append((partition, shard.machine))
    return found


def term_of(broker: Broker | None, group: str) -> int:
    """The term of the leader that coordinates the group; -1 where nobody leads."""
    topic = None if broker is None else broker.image.topics.get(OFFSETS_TOPIC)
    if broker is None or topic is None:
        return -1
    partition = broker.partitions.get(OFFSETS_TOPIC, coordinator_partition(group, len(topic.partitions)))
    return -1 if partition is None or partition.leader is None else partition.leader.epoch
