"""The active controller: requests in, records and responses out.

`handle` finds who decides; `activate` and `tick` are the decisions that nobody asks for. The one who drives it replays
each decision's records into `image` before the next request, writes them, and lets the response go when they are
committed (design: live state equals replayed state).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainstem.core.controller import brokers, configs, elections, features, partitions, topics, versions
from mainstem.core.controller.context import ELR_VERSION, Context, ControllerSettings, Decision
from mainstem.core.controller.features import elr_config
from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k19_create_topics import CreateTopicsRequest
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from mainstem.protocol.messages.k33_alter_configs import AlterConfigsRequest
from mainstem.protocol.messages.k37_create_partitions import CreatePartitionsRequest
from mainstem.protocol.messages.k43_elect_leaders import ElectLeadersRequest
from mainstem.protocol.messages.k44_incremental_alter_configs import IncrementalAlterConfigsRequest
from mainstem.protocol.messages.k45_alter_partition_reassignments import AlterPartitionReassignmentsRequest
from mainstem.protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from mainstem.protocol.messages.k56_alter_partition import AlterPartitionRequest
from mainstem.protocol.messages.k57_update_features import UpdateFeaturesRequest
from mainstem.protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from mainstem.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from mainstem.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from mainstem.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from mainstem.protocol.messages.k70_controller_registration import ControllerRegistrationRequest
from mainstem.protocol.messages.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from mainstem.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from mainstem.protocol.schema import Message

BOOTSTRAP_TRANSACTION = "Bootstrap records"


class Controller:
    def __init__(self, image: ClusterImage, settings: ControllerSettings, new_id: Callable[[], bytes]) -> None:
        self.context = Context(image, settings, new_id)
        self._ticked_ms: int | None = None

    @property
    def image(self) -> ClusterImage:
        """Everything decided so far, committed or not."""
        return self.context.image

    def handle(self, request: Message, version: int, now_ms: int, next_offset: int) -> Decision:
        """`now_ms` is for the sessions of brokers and only ever rises; `next_offset` is where the records will go."""
        context = self.context
        match request:
            case BrokerHeartbeatRequest():
                return brokers.broker_heartbeat(context, request, now_ms, next_offset)
            case AllocateProducerIdsRequest():
                return partitions.allocate_producer_ids(context, request)
            case AlterPartitionRequest():
                return partitions.alter_partition(context, request, version)
            case CreateTopicsRequest():
                return topics.create_topics(context, request)
            case DeleteTopicsRequest():
                return topics.delete_topics(context, request, version)
            case CreatePartitionsRequest():
                return topics.create_partitions(context, request)
            case IncrementalAlterConfigsRequest():
                return configs.incremental_alter_configs(context, request)
            case AlterConfigsRequest():
                return configs.alter_configs(context, request)
            case BrokerRegistrationRequest():
                return brokers.register_broker(context, request, now_ms, next_offset)
            case ControllerRegistrationRequest():
                return brokers.register_controller(context, request)
            case UnregisterBrokerRequest():
                return brokers.unregister_broker(context, request)
            case AssignReplicasToDirsRequest():
                return partitions.assign_replicas_to_dirs(context, request)
            case ElectLeadersRequest():
                return elections.elect_leaders(context, request, version)
            case AlterPartitionReassignmentsRequest():
                return elections.alter_reassignments(context, request)
            case ListPartitionReassignmentsRequest():
                return elections.list_reassignments(context, request)
            case UpdateFeaturesRequest():
                return features.update_features(context, request, version)
        raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not for the controller")

    @property
    def needs_bootstrap(self) -> bool:
        """Whether nothing was agreed on yet: the log is new, or what it was to begin with was left unfinished."""
        return versions.METADATA_VERSION not in self.image.features

    def activate(self, bootstrap: Sequence[Message]) -> list[Message]:
        """What a new active controller writes first.

        What an earlier controller left unfinished is aborted (KIP-868). Where it is needed, `bootstrap` is taken over,
        as one transaction, so that nobody sees half of it.
        """
        aborted: list[Message] = []
        if self.image.in_transaction:
            aborted.append(AbortTransactionRecord(reason="The controller that began this transaction is gone."))
        if not self.needs_bootstrap:
            return aborted
        levels = {one.name: one.feature_level for one in bootstrap if isinstance(one, FeatureLevelRecord)}
        records: list[Message] = list(bootstrap)
        if levels.get(ELR_VERSION, 0) > 0:
            records += elr_config(self.context)
        if not versions.has_transactions(levels.get(versions.METADATA_VERSION, 0)):
            return aborted + records
        return [*aborted, BeginTransactionRecord(name=BOOTSTRAP_TRANSACTION), *records, EndTransactionRecord()]

    def tick(self, now_ms: int) -> list[Message]:
        """Fences brokers that have gone silent; to be called a few times within a session's time-out."""
        last, self._ticked_ms = self._ticked_ms, now_ms
        if last is None or now_ms - last > self.context.settings.session_timeout_ms // 2:
            # We were not running (a stopped process, a sleeping laptop): their heartbeats may be waiting unread.
            for session in self.context.sessions.values():
                session.contacted_ms = now_ms
            return []
        return brokers.silent_brokers(self.context, now_ms)
