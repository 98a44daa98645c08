"""G9: a member whose heartbeat was answered stays for a session, whatever else it does or does not do.

A heartbeat is heard after it was sent, a session is counted from when it is heard, and timers may be late but never
early. So who is told that it is not known, before a session has passed since it sent a heartbeat that was welcome, was
put out too early. It has not left: who leaves does not use that id again. What else puts out a member has not come
about either: one that has to join or to ask for its part has longer for that than a session, and its time begins after
the last heartbeat that was welcome.

Within one life of the broker: what a power loss has taken nobody knows.
"""

from mainstem.protocol.errors import ErrorCode
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation


class MembersStay(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._heard: dict[tuple[str, str], tuple[float, int]] = {}
        """By group and member when its last welcome heartbeat was sent, and to which life of the broker."""

    def heard(self, group: str, member_id: str, life: int, sent_s: float) -> None:
        """A heartbeat that was sent then was welcome."""
        self._heard[group, member_id] = (sent_s, life)

    def is_unknown(self, group: str, member_id: str, life: int, session_s: float) -> None:
        """A member is told so, in this life of the broker."""
        heard = self._heard.pop((group, member_id), None)
        if heard is None or heard[1] != life:
            return
        silent_s = self.world.scheduler.now - heard[0]
        if silent_s < session_s:
            raise Violation(
                "G9 a living member stays",
                f"{member_id} of {group} is told {ErrorCode.UNKNOWN_MEMBER_ID.name}, {silent_s:.3f} s after it sent a "
                f"heartbeat that was answered; its session is {session_s} s",
            )
        self.world.count("end of a session looked at")
