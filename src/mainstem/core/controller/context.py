"""What every part of the controller works with: the image, the settings, the liveness of brokers, and what is decided.

Rules of the controller:
- A handler turns a request into records and a response and changes nothing: the records do, when they are replayed.
  What a handler sees is the image after every record decided so far, committed or not; its response leaves when
  everything it was based on is committed.
- Soft state (when a broker was last heard of) is not in the log, and a new controller begins without it.
- Ids come from `new_id`, times as arguments: nothing here reaches for a clock or for randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mainstem.core.controller import versions
from mainstem.core.controller.image import BROKER, TOPIC, ClusterImage
from mainstem.core.controller.states import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerState,
    PartitionState,
)
from mainstem.core.log.config import LogConfig
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.schema import Message

RECORDS_MAX: Final = 10_000
"""How many records one user's request may write, as in Kafka."""

ELR_VERSION: Final = "eligible.leader.replicas.version"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    versions.METADATA_VERSION: (versions.METADATA_VERSION_MIN, versions.METADATA_VERSION_LATEST),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
    ELR_VERSION: (0, 1),
}
"""The levels that a node of ours can live with, which are Kafka 4.3's: what is not served yet is kept all the same."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    node_id: int
    cluster_id: str = ""
    default_partitions: int = 1
    default_replication_factor: int = 1
    log_defaults: LogConfig = field(default_factory=LogConfig)
    """What the node's own settings give to topics that set nothing."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The node's settings as they were given, to say where a topic's value comes from."""
    broker_lists: Mapping[str, str] = field(default_factory=dict)
    """The settings of brokers that are lists, with their defaults: those that can be added to and taken from."""
    session_timeout_ms: int = 9000
    delete_topics: bool = True


class Decision:
    """The answer to a request: `records` are written first, all in one batch when `atomic`."""

    __slots__ = ("atomic", "records", "response")

    def __init__(self, response: Message, records: list[Message] | None = None, atomic: bool = True) -> None:
        self.response = response
        self.records = [] if records is None else records
        self.atomic = atomic


class Session:
    """What the controller last heard from a broker."""

    __slots__ = ("contacted_ms", "epoch", "metadata_offset", "registered_at", "shutdown_at")

    def __init__(self, epoch: int, registered_at: int, contacted_ms: int) -> None:
        self.epoch = epoch
        self.registered_at = registered_at
        """The offset of its registration: a broker that has replayed it has caught up."""
        self.contacted_ms = contacted_ms
        self.metadata_offset = -1
        self.shutdown_at = -1
        """Where its controlled shutdown was written; others must know of it before it may go."""


class Context:
    def __init__(self, image: ClusterImage, settings: ControllerSettings, new_id: Callable[[], bytes]) -> None:
        self.image = image
        self.settings = settings
        self.new_id = new_id
        self.sessions: dict[int, Session] = {}
        self.kraft_version = 1
        """Finalized by the quorum's own records, not by the metadata's."""

    # -- what is enabled -------------------------------------------------------------------------------------------

    @property
    def elr_enabled(self) -> bool:
        return self.image.features.get(ELR_VERSION, 0) >= 1

    @property
    def has_directories(self) -> bool:
        return versions.has_directories(self.image.metadata_version)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def can_lead(self, partition: PartitionState, broker_id: int) -> bool:
        """Whether that replica's broker is active and the directory that holds it is online."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or not broker.is_active:
            return False
        if broker_id not in partition.replicas:
            return True
        return broker.has_online_directory(partition.directory_of(broker_id))

    def check_epoch(self, broker_id: int, epoch: int) -> BrokerState:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise RemoteError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != epoch:
            raise RemoteError(
                ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
            )
        return broker

    def default_directory(self, broker_id: int) -> bytes:
        """Where a new replica on that broker goes; a broker with several directories chooses itself (KIP-858)."""
        directories = self.image.brokers[broker_id].log_dirs
        if not directories:
            return MIGRATING_DIRECTORY
        return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY

    # -- configs ---------------------------------------------------------------------------------------------------

    def topic_setting(self, topic: str, name: str) -> str | None:
        """A topic's own value, or what was set for all brokers while they ran; None where neither is."""
        own = self.image.config(TOPIC, topic).get(name)
        return own if own is not None else self.image.config(BROKER, "").get(name)

    def min_in_sync(self, topic: str) -> int:
        text = self.topic_setting(topic, MIN_INSYNC_REPLICAS)
        # What another controller let in must not stop this one.
        return int(text) if text is not None and text.isdecimal() else self.settings.log_defaults.min_insync_replicas

    def unclean_election_enabled(self, topic: str) -> bool:
        text = self.topic_setting(topic, "unclean.leader.election.enable")
        return self.settings.log_defaults.unclean_leader_election_enable if text is None else text == "true"
