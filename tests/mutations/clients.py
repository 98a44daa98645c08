"""Bugs of our own consumer and producer, and of sessions and leaders in groups."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mainstem.client.cluster import CoordinatorKind
from mainstem.client.commits import Commits
from mainstem.client.positions import Positions
from mainstem.client.transactions import GroupMetadata, TransactionManager
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.core.coordinator.effects import ArmTimer
from mainstem.core.group.classic import STABLE
from mainstem.core.group.rebalance import HEARTBEAT, Rebalancing
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

Reached = Callable[[], None]


# Our client


def starts_skip(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who takes over a partition begins three records past what its group has committed."""
    original = Commits.committed

    async def committed(self: Commits, *args: Any, **options: Any) -> Any:
        found = await original(self, *args, **options)
        for tp, each in found.items():
            reached()
            found[tp] = OffsetAndMetadata(each.offset + 3, each.metadata, each.leader_epoch)
        return found

    patch.setattr(Commits, "committed", committed)


def starts_are_at_the_end(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who takes over a partition begins at its end, whatever its group has committed."""

    async def start(self: Positions) -> None:
        for state in self._unsettled():
            if state.position is None and state.reset is None:
                reached()
                state.ask_reset("latest")

    patch.setattr(Positions, "_start_from_committed", start)


def positions_go_alone(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: our producer commits a group's offsets at once, whatever becomes of its transaction."""

    async def send_offsets(
        self: TransactionManager, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        reached()
        request = OffsetCommitRequest(
            group_id=group.group_id,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=tp.topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=tp.partition,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            committed_metadata=each.metadata,
                        )
                    ],
                )
                for tp, each in offsets.items()
            ],
        )
        connection = await self._cluster.coordinator(CoordinatorKind.GROUP, group.group_id)
        await connection.ask(request, OffsetCommitResponse, version=8)

    patch.setattr(TransactionManager, "send_offsets", send_offsets)


# Groups


def takeover_expects_nobody(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who takes over a group waits for no heartbeat of its members."""
    original = Rebalancing.take_over

    def take_over(self: Rebalancing, now_ms: int) -> Any:
        out = original(self, now_ms)
        timers = [each for each in out.effects if _is_session(each)]
        if timers:
            reached()
        out.effects = [each for each in out.effects if not _is_session(each)]
        return out

    patch.setattr(Rebalancing, "take_over", take_over)


def sessions_do_not_end(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: nobody waits for heartbeats, so who is gone is never put out."""

    def expect(self: Rebalancing, out: Any, group: Any, member: Any) -> None:
        reached()

    patch.setattr(Rebalancing, "_expect_heartbeat", expect)


def _is_session(effect: Any) -> bool:
    return isinstance(effect, ArmTimer) and effect.key[0] == HEARTBEAT


def leaders_are_not_heard(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a leader that joins again is told the generation that it leads, and no other one begins."""
    original = Rebalancing._rebalance_or_complete

    def rebalance_or_complete(self: Rebalancing, out: Any, group: Any, reason: str) -> None:
        if group.state is not STABLE or "joined again" not in reason:
            original(self, out, group, reason)
            return
        for member in list(group.members.values()):
            ticket = group.take_join_ticket(member)
            if ticket is not None:
                reached()
                out.reply(ticket, self._joined(group, member.member_id, with_members=True))
                self._expect_heartbeat(out, group, member)

    patch.setattr(Rebalancing, "_rebalance_or_complete", rebalance_or_complete)
