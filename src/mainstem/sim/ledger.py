"""What the clients of a run know: what they sent, what was acknowledged, what they read.

Values are unique, so the order of a log can be told from what clients saw (Jepsen's way). A power loss with
acknowledgements from the page cache may take records away again; `cut` says where a log ended when it came back, and
everything that an earlier life of the broker said about offsets past that no longer counts. With an fsync before each
acknowledgement no such cut may touch what anybody saw. Of a partition whose files were damaged only one thing is
promised: nobody reads what nobody sent.

Names of violations are Jepsen's where it has one.
"""

from collections.abc import Callable

from mainstem.protocol.batch import BatchView
from mainstem.protocol.records import Record

Place = tuple[str, int]


def place_of(path: str) -> Place:
    """The partition that a file belongs to; one with index -1 where it belongs to none."""
    topic, _, index = path.rsplit("/", 2)[-2].rpartition("-")
    return (topic, int(index)) if index.isdigit() else (path, -1)


class Violation(Exception):  # noqa: N818
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(invariant, what)
        self.invariant = invariant
        self.what = what

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Send:
    __slots__ = (
        "acked_at",
        "begun",
        "headers",
        "is_sent_anew",
        "is_tombstone",
        "key",
        "number",
        "ordered",
        "place",
        "producer",
        "timestamp_ms",
        "value",
        "was_lost",
    )

    def __init__(
        self,
        place: Place,
        value: bytes,
        key: bytes | None,
        producer: str,
        number: int,
        ordered: bool,
        is_sent_anew: bool = False,
        is_tombstone: bool = False,
        begun: int = 0,
    ) -> None:
        self.place = place
        self.value = value
        self.key = key
        self.producer = producer
        self.number = number
        self.ordered = ordered
        """Whether this producer's records must be in the order it sent them (T2)."""
        self.is_sent_anew = is_sent_anew
        """Whether a producer that lost its place begins anew with what it has under way, in whatever order."""
        self.is_tombstone = is_tombstone
        self.begun = begun
        """How many producer ids its producer had been given before the one that it was sent with."""
        self.acked_at: int | None = None
        self.was_lost = False
        self.headers: list[tuple[str, bytes | None]] | None = None
        """None where nobody says which it has."""
        self.timestamp_ms = -1
        """-1 where nobody says which it has."""


class History:
    """What was seen of one partition in the lineage that counts."""

    __slots__ = ("at", "cuts", "where")

    def __init__(self) -> None:
        self.at: dict[int, bytes] = {}
        self.where: dict[bytes, int] = {}
        self.cuts: list[tuple[int, int]] = []
        """From which life of the broker on the log ended where."""


class Ledger:
    def __init__(self, count: Callable[[str], None]) -> None:
        self.sends: dict[bytes, Send] = {}
        self.histories: dict[Place, History] = {}
        self.acked_count = 0
        self.read_count = 0
        self._count = count
        self.damaged: dict[Place, None] = {}
        """Partitions whose bytes changed by themselves."""
        self.mistimed: dict[Place, None] = {}
        """Partitions that have a time index whose bytes did: it may lead to another moment, or call a segment old."""
        self.loses_nothing = True
        """Whether each acknowledgement is durable: then nothing that was seen may go."""
        self.durable_topics: frozenset[str] = frozenset()
        """Topics of which each acknowledgement is durable, whatever holds of others."""
        self.append_time_topics: frozenset[str] = frozenset()
        """Topics whose records have the time of their append (`message.timestamp.type`)."""
        self.codecs: dict[str, int] = {}
        """Those that topics store their batches with, whatever producers send (`compression.type`)."""
        self.may_be_twice: Callable[[Send], bool] = lambda send: False
        """Whether a record may rightly be there twice: the broker had forgotten its producer (C5)."""

    def history(self, place: Place) -> History:
        found = self.histories.get(place)
        if found is None:
            found = self.histories[place] = History()
        return found

    def sent(self, send: Send) -> None:
        self.sends[send.value] = send

    def acked(self, value: bytes, offset: int, life: int) -> None:
        send = self.sends[value]
        self.acked_count += 1
        if send.place in self.damaged:
            return
        if self._is_gone(send.place, offset, life):
            self._gone(send, offset)
            return
        if send.acked_at is not None and send.acked_at != offset and not self.may_be_twice(send):
            raise Violation(
                "T1 a retry gets its first offset",
                f"{value!r} of {send.producer} was acknowledged at {send.acked_at} and at {offset} of {send.place}",
            )
        send.acked_at = offset
        self._seen(send.place, offset, value)

    def read(self, place: Place, offset: int, value: bytes, life: int) -> None:
        self.read_count += 1
        if value not in self.sends:
            raise Violation("phantom", f"{place} has {value!r} at {offset}, which nobody sent")
        if self.sends[value].place != place:
            raise Violation("phantom", f"{value!r} was sent to {self.sends[value].place} and is in {place}")
        if place in self.damaged:
            return
        if not self._is_gone(place, offset, life):
            self._seen(place, offset, value)
        elif self.is_durable(place):
            raise Violation("P1 what was read is there", f"{value!r} was read at {offset} of {place} and is gone")

    def is_durable(self, place: Place) -> bool:
        return self.loses_nothing or place[0] in self.durable_topics

    def difference(self, place: Place, batch: BatchView, record: Record, value: bytes) -> str:
        """In what a record that was read is not as it was sent; nothing where it is, or nobody sent it."""
        send = self.sends.get(value)
        if send is None:
            return ""
        if self.codecs.get(place[0], batch.codec) != batch.codec:
            return f"{value!r} is stored with codec {batch.codec}, and the topic's is {self.codecs[place[0]]}"
        if record.key != send.key:
            return f"the key of {value!r} is {record.key!r}, and was {send.key!r}"
        if send.headers is not None and record.headers != send.headers:
            return f"the headers of {value!r} are {record.headers}, and were {send.headers}"
        is_append_time = place[0] in self.append_time_topics
        if batch.is_log_append_time != is_append_time:
            kind = "is not that of its append" if is_append_time else "is that of its append, and not the producer's"
            return f"the timestamp of {value!r} {kind}"
        if not is_append_time and send.timestamp_ms >= 0 and record.timestamp != send.timestamp_ms:
            return f"the timestamp of {value!r} is {record.timestamp}, and was {send.timestamp_ms}"
        return ""

    def _is_gone(self, place: Place, offset: int, life: int) -> bool:
        return any(life < later and offset >= end for later, end in self.history(place).cuts)

    def was_cut(self, place: Place) -> bool:
        return bool(self.history(place).cuts)

    def was_cut_below(self, place: Place, offset: int) -> bool:
        return any(end < offset for _, end in self.history(place).cuts)

    def _gone(self, send: Send, offset: int) -> None:
        if self.is_durable(send.place):
            raise Violation(
                "P1 what was acknowledged is there",
                f"{send.value!r} was acknowledged at {offset} of {send.place}, and the log came back shorter",
            )
        send.was_lost = True
        send.acked_at = None
        self._count("allowed loss")

    def _seen(self, place: Place, offset: int, value: bytes) -> None:
        history = self.history(place)
        other = history.at.setdefault(offset, value)
        if other != value:
            raise Violation("inconsistent-offsets", f"{place} has {other!r} and {value!r} at offset {offset}")
        elsewhere = history.where.setdefault(value, offset)
        if elsewhere != offset and not self.may_be_twice(self.sends[value]):
            raise Violation("duplicate", f"{place} has {value!r} at {elsewhere} and at {offset}")

    def damage(self, place: Place) -> None:
        self.damaged[place] = None
        self.histories.pop(place, None)
        for send in self.sends.values():
            if send.place == place:
                send.acked_at = None

    def forget(self) -> None:
        """The broker has another disk: of what was sent before nothing is known, but that it may be there."""
        self.histories.clear()
        for send in self.sends.values():
            send.acked_at = None
            send.ordered = False

    def cut(self, place: Place, life: int, end: int) -> None:
        """The log came back with this end, in this life of the broker, after a power loss."""
        history = self.history(place)
        history.cuts.append((life, end))
        gone = [offset for offset in history.at if offset >= end]
        for offset in gone:
            value = history.at.pop(offset)
            history.where.pop(value, None)
            send = self.sends[value]
            if send.acked_at is not None:
                self._gone(send, offset)
            elif self.is_durable(place):
                raise Violation("P1 what was read is there", f"{value!r} was read at {offset} of {place} and is gone")
