"""What the log of a group coordinator says, and what becomes of it.

- G6: the coordinator's state is what a replay of its log gives, and of any compaction of its log: the last record of
  each key, with or without the tombstones.
- G7: no offset expires while its group has members, nor before its time. Nor does anybody delete one then: members of
  the groups here read the topic that they commit for.
- G4: what is in it, commits and tombstones, is what clients asked for, expiry, or the end of a topic. All of it is
  noted in the ledger, in the order of the log, and what a power loss takes of it.
"""

from random import Random

from mainstem.broker.app import Broker
from mainstem.core.group.classic import EMPTY, NO_STATE_TIMESTAMP, STABLE
from mainstem.core.group.records import read_offset_key, read_offset_value
from mainstem.core.group.store import OFFSET_PREFIX, GroupStore
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.offsets_follow import Position
from mainstem.sim.group_ledger import OffsetAndEpoch
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.written import OFFSETS_TOPIC
from mainstem.storage.log import Log


class GroupLog(Checker):
    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] != OFFSETS_TOPIC or batch.is_control or batch.is_transactional:
            return
        for record in iterate_records(batch):
            if record.key is None:
                continue
            if record.key.startswith(OFFSET_PREFIX):
                self._offset(place[1], record.offset, record.key, record.value)
            else:
                self._other(place[1], record.offset, record.key, record.value)

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        if place[0] == OFFSETS_TOPIC:
            self.world.groups.cut(place[1], end, self.world.process.life)

    def _other(self, index: int, at: int, raw_key: bytes, raw_value: bytes | None) -> None:
        key, value = GROUP_RECORDS.decode(raw_key, raw_value)
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self.world.groups.log_generation(key.group, -1 if value is None else value.generation, index, at)

    def _offset(self, index: int, at: int, key: bytes, raw_value: bytes | None) -> None:
        groups = self.world.groups
        group, topic, partition = read_offset_key(key)
        place = (topic, partition)
        if raw_value is not None:
            value = read_offset_value(raw_value)
            position = OffsetAndEpoch(value.offset, value.leader_epoch)
            groups.log_commit(group, place, value.metadata, position, value.commit_timestamp, index, at)
            return
        deletion = None
        last = self.world.offsets_follow.find(group, place)
        if (groups.knows(group) or last is not None) and not self.world.may_be_gone([topic]):
            why = self._not_expired(index, group, place, last)
            if why is None:
                self.world.count("offset expired")
                if last is not None and last.is_transactional:
                    self.world.count("offset of a transaction expired")
                self.world.trace("offset expired", group, topic, partition)
            else:
                deletion = groups.deletion(group)
                if deletion is None or self._is_stable(index, group):
                    raise why
        groups.log_tombstone(group, place, index, at, deletion)

    def _is_stable(self, index: int, group_id: str) -> bool:
        """Whether it has members, and had them when this was written: until it is Stable there is a later record."""
        broker = self.world.process.broker
        shard = None if broker is None else broker.groups.runtime.shards.get(index)
        group = None if shard is None else shard.machine.groups.get(group_id)
        return group is not None and group.state is STABLE

    def _not_expired(self, index: int, group_id: str, place: Place, last: Position | None) -> Violation | None:
        """Why it cannot be that an offset's time was over, if it cannot."""
        broker = self.world.process.broker
        shard = None if broker is None else broker.groups.runtime.shards.get(index)
        if shard is None or not self.world.process.is_serving:
            return None  # of what a start has found nobody knows how it was when it was written
        machine = shard.machine
        group = machine.groups.get(group_id)
        since_ms = None if last is None else last.committed_ms
        if self.world.offsets_follow.is_staged(group_id, place):
            return Violation(
                "G7 offsets stay while a transaction has them",
                f"{group_id} lost its offset of {place[0]}-{place[1]} while it was staged",
            )
        if group is not None:
            if group.members:
                return Violation(
                    "G7 offsets stay while a group has members",
                    f"{group_id} is {group.state.value} and lost its offset of {place[0]}-{place[1]}",
                )
            if group.protocol_type is not None and group.state is EMPTY:
                since_ms = None if group.state_timestamp_ms == NO_STATE_TIMESTAMP else group.state_timestamp_ms
        elif self.world.groups.had_members(group_id):
            since_ms = None  # gone with its last offset, and since when it was empty with it
        now_ms = self.world.process.clock.wall_ms()
        if since_ms is not None and now_ms - since_ms < machine.config.offsets_retention_ms:
            return Violation(
                "G7 offsets stay their time",
                f"{group_id} lost its offset of {place[0]}-{place[1]} after {now_ms - since_ms} ms",
            )
        return None

    def at_end(self, broker: Broker) -> None:
        rng = Random(f"{self.world.seed}:compaction of groups")
        for index, shard in broker.groups.runtime.shards.items():
            partition = broker.partitions.get(OFFSETS_TOPIC, index)
            if partition is None or not shard.is_serving:
                continue
            batches = self._batches(partition.log)
            if any(batch.is_control and not batch.record_count for batch in batches):
                self.world.count("empty marker in the log of a coordinator")
            live = _state(shard.machine.store)
            if _state(_replayed(batches)) != live:
                raise Violation("G6 state is what the log says", f"{partition}: a replay of it comes out differently")
            if not any(batch.is_transactional for batch in batches) and _state(_compacted(batches, rng)) != live:
                raise Violation(
                    "G6 state is what the log says", f"{partition}: a compaction of it comes out differently"
                )
            self.world.count("group log replayed")

    def _batches(self, log: Log) -> list[BatchView]:
        found: list[BatchView] = []
        for segment in log.segments:
            data = self.world.disk.peek(segment.log.path)[: segment.size]
            found += iterate_batches(data, 0, len(data))
        return found


def _replayed(batches: list[BatchView]) -> GroupStore:
    store = GroupStore()
    for batch in batches:
        if batch.is_control:
            marker = parse_end_marker(batch)
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
