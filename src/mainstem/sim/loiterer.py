"""A member that joins its group and is alive by every heartbeat, and never asks for its part (KAFKA-12890).

It comes when all is healed and the others have left. The group waits for it, and would for ever if a heartbeat were
enough to stay; it has to be put out when the time for a rebalance is over (G9).
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.group_members import REBALANCE_MS, SESSION_MS, find_coordinator
from mainstem.sim.ledger import Violation

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARE: Final = 0.4
_BEAT_S: Final = 0.4
_JOINS_MAX: Final = 10
_BEATS_MAX: Final = int(REBALANCE_MS / 1000 / _BEAT_S) * 3


def comes(seed: int) -> bool:
    return Random(f"{seed}:loiterer").random() < SHARE


async def loiter(world: "World", client: SimClient, group: str) -> None:
    for _ in range(_JOINS_MAX):
        with contextlib.suppress(NoAnswer):
            if await find_coordinator(client, group) is ErrorCode.NONE:
                joined = await _join(client, group)
                if joined is not None:
                    await _beat(world, client, group, joined)
                    return
        await asyncio.sleep(_BEAT_S)


async def _join(client: SimClient, group: str) -> JoinGroupResponse | None:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joined = await client.ask(request, 9, JoinGroupResponse, timeout_s=6)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = joined.member_id
        joined = await client.ask(request, 9, JoinGroupResponse, timeout_s=6)
    return joined if joined.error_code == ErrorCode.NONE else None


async def _beat(world: "World", client: SimClient, group: str, joined: JoinGroupResponse) -> None:
    beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    for _ in range(_BEATS_MAX):
        await asyncio.sleep(_BEAT_S)
        answer = await client.ask(beat, 4, HeartbeatResponse)
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            world.count("C3 member put out that never asked for its part")
            return
    raise Violation("G9 nobody holds up a group", f"{group} still waits for a member that never asks for its part")
