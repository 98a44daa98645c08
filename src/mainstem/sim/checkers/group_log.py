"""What the log of a group coordinator says, and what becomes of it.

- G6: the coordinator's state is what a replay of its log gives, and of any compaction of its log: the last record of
  each key, with or without the tombstones.
- G7: no offset expires while its group has members, nor before its time. An offset that did expire is noted, so that
  nobody looks for it at the end.
"""

from random import Random

from mainstem.broker.app import Broker
from mainstem.core.group.classic import EMPTY, NO_STATE_TIMESTAMP
from mainstem.core.group.machine import GroupMachine
from mainstem.core.group.records import read_offset_key, read_offset_value
from mainstem.core.group.store import OFFSET_PREFIX, GroupStore
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.messages.group_records import GroupMetadataKey
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.storage.log import Log

TOPIC = "__consumer_offsets"


class GroupLog(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._read_to: dict[Log, int] = {}
        self._committed_ms: dict[tuple[str, str, int], int] = {}
        """When each offset was last committed in this life of the broker."""

    def died(self, broker: Broker | None, how: str) -> None:
        self._read_to.clear()
        self._committed_ms.clear()

    def served(self, broker: Broker) -> None:
        for partition in broker.partitions:
            if partition.topic == TOPIC:
                self._read_to[partition.log] = partition.log.log_end

    def after_step(self, broker: Broker) -> None:
        for index, shard in broker.groups.runtime.shards.items():
            partition = broker.partitions.get(TOPIC, index)
            if partition is None:
                continue
            log = partition.log
            read_to = self._read_to.setdefault(log, 0)
            if log.log_end != read_to:
                self._read_to[log] = log.log_end
                for batch in self._batches(log, read_to):
                    if not batch.is_control and not batch.is_transactional:
                        self._appended(shard.machine, batch)

    def _batches(self, log: Log, offset: int) -> list[BatchView]:
        found = []
        segments = log.segments
        for at, segment in enumerate(segments):
            if at + 1 == len(segments) or segments[at + 1].base_offset > offset:
                data = self.world.disk.peek(segment.log.path)[: segment.size]
                found += [batch for batch in iterate_batches(data, 0, len(data)) if batch.base_offset >= offset]
        return found

    def _appended(self, machine: GroupMachine, batch: BatchView) -> None:
        for record in iterate_records(batch):
            if record.key is None:
                continue
            if not record.key.startswith(OFFSET_PREFIX):
                if record.value is None:
                    self._buried(record.key)
                continue
            place = read_offset_key(record.key)
            if record.value is not None:
                self._committed_ms[place] = read_offset_value(record.value).commit_timestamp
            elif not self.world.groups.is_being_deleted(place[0]):
                self._expired(machine, *place)

    def _buried(self, raw_key: bytes) -> None:
        key, _ = GROUP_RECORDS.decode(raw_key, None)
        if isinstance(key, GroupMetadataKey):
            self.world.groups.begins_anew(key.group)

    def _expired(self, machine: GroupMachine, group_id: str, topic: str, partition: int) -> None:
        self.world.count("offset expired")
        self.world.trace("offset expired", group_id, topic, partition)
        self.world.groups.expired(group_id, (topic, partition))
        group = machine.groups.get(group_id)
        if group is None:
            return  # gone with its last offset, and since when it was empty with it
        if group.members:
            raise Violation(
                "G7 offsets stay while a group has members",
                f"{group_id} is {group.state.value} and lost its offset of {topic}-{partition}",
            )
        since_ms = self._committed_ms.get((group_id, topic, partition))
        if group.protocol_type is not None and group.state is EMPTY:
            since_ms = None if group.state_timestamp_ms == NO_STATE_TIMESTAMP else group.state_timestamp_ms
        now_ms = self.world.process.clock.wall_ms()
        if since_ms is not None and now_ms - since_ms < machine.config.offsets_retention_ms:
            raise Violation(
                "G7 offsets stay their time",
                f"{group_id} lost its offset of {topic}-{partition} after {now_ms - since_ms} ms",
            )

    def at_end(self, broker: Broker) -> None:
        rng = Random(f"{self.world.seed}:compaction of groups")
        for index, shard in broker.groups.runtime.shards.items():
            partition = broker.partitions.get(TOPIC, index)
            if partition is None or not shard.is_serving:
                continue
            batches = self._batches(partition.log, 0)
            live = _state(shard.machine.store)
            if _state(_replayed(batches)) != live:
                raise Violation("G6 state is what the log says", f"{partition}: a replay of it comes out differently")
            if not any(batch.is_transactional for batch in batches) and _state(_compacted(batches, rng)) != live:
                raise Violation(
                    "G6 state is what the log says", f"{partition}: a compaction of it comes out differently"
                )
            self.world.count("group log replayed")


def _replayed(batches: list[BatchView]) -> GroupStore:
    store = GroupStore()
    for batch in batches:
        if batch.is_control:
            marker = parse_end_marker(batch) if batch.record_count else None
            if marker is not None:
                store.replay_marker(batch.producer_id, marker.commit)
            continue
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in iterate_records(batch):
            assert record.key is not None
            store.replay(record.key, record.value, producer_id)
    return store


def _compacted(batches: list[BatchView], rng: Random) -> GroupStore:
    newest: dict[bytes, bytes | None] = {}
    for batch in batches:
        for record in iterate_records(batch):
            assert record.key is not None
            newest.pop(record.key, None)
            newest[record.key] = record.value
    store = GroupStore()
    for key, value in newest.items():
        if value is not None or rng.random() < 0.5:
            store.replay(key, value)
    return store


def _state(store: GroupStore) -> tuple[object, ...]:
    offsets = {
        (group, *place): committed.value() for group, held in store.offsets.items() for place, committed in held.items()
    }
    return offsets, store.metadata, store.others
