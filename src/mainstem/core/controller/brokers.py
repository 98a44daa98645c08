"""Brokers and controllers: registration, heartbeats, fencing and shutdown (KIP-631, KIP-841, KIP-919).

    registered, fenced -> unfenced -> in controlled shutdown -> fenced, may go
                 ^____________|   fenced for being silent, for asking to be, or by a new registration

Rules:
- A broker epoch is the offset of the batch that registers an incarnation: later is larger. The same incarnation that
  registers again, because an answer was lost, keeps its epoch and its state (KAFKA-16952).
- An incarnation does not displace another that may be alive. One that runs on this controller's own node is not: a
  node's directory is locked by one process, and it is ours.
- A broker that comes back without the epoch it shut down with may have lost what it had not synced: it is eligible to
  lead nothing (KIP-966), and every partition it leads gets a new leader epoch.
- A broker is unfenced when it asks to be and has replayed its own registration.
- In a controlled shutdown leaders move away first; the broker may go when it leads nothing more and every other
  active broker knows.
"""

from __future__ import annotations

from collections.abc import Iterator

from mainstem.core.controller import versions
from mainstem.core.controller.context import SUPPORTED_FEATURES, Context, Decision, Session
from mainstem.core.controller.leadership import broker_came, broker_left
from mainstem.core.controller.states import BrokerState, PartitionState, TopicState
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from mainstem.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from mainstem.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from mainstem.protocol.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from mainstem.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from mainstem.protocol.schema import Message

NEVER = 1 << 62


# -- registration --------------------------------------------------------------------------------------------------


def register_broker(context: Context, request: BrokerRegistrationRequest, now_ms: int, next_offset: int) -> Decision:
    try:
        return _register(context, request, now_ms, next_offset)
    except RemoteError as error:
        return Decision(BrokerRegistrationResponse(error_code=error.code))


def _register(context: Context, request: BrokerRegistrationRequest, now_ms: int, next_offset: int) -> Decision:
    if context.settings.cluster_id and request.cluster_id != context.settings.cluster_id:
        raise RemoteError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {context.settings.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = context.image.brokers.get(request.broker_id)
    again = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not again and _may_be_alive(context, existing, now_ms):
        raise RemoteError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {request.broker_id} is registered by another incarnation whose session has not expired",
        )
    _check_features(context, request)
    _check_directories(context, request)
    records: list[Message] = []
    if existing is not None and not again:
        records += _leave_behind(context, existing, clean=request.previous_broker_epoch == existing.epoch)
    version = versions.register_broker_version(context.image.metadata_version)
    epoch = existing.epoch if again and existing is not None else next_offset
    records.append(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=one.name,
                    min_supported_version=one.min_supported_version,
                    max_supported_version=one.max_supported_version,
                )
                for one in request.features
            ],
            rack=request.rack,
            fenced=existing.fenced if again and existing is not None else True,
            in_controlled_shutdown=existing.in_controlled_shutdown if again and existing is not None else False,
            log_dirs=list(request.log_dirs) if version >= 3 else [],
        )
    )
    session = context.sessions.get(request.broker_id)
    if session is None or session.epoch != epoch:
        context.sessions[request.broker_id] = Session(epoch, next_offset + len(records) - 1, now_ms)
    else:
        session.contacted_ms = now_ms
    return Decision(
        BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=epoch), records, atomic=len(records) == 1
    )


def _may_be_alive(context: Context, broker: BrokerState, now_ms: int) -> bool:
    if broker.fenced or broker.in_controlled_shutdown:
        return False
    session = context.sessions.get(broker.broker_id)
    if session is None:
        return broker.broker_id != context.settings.node_id
    return now_ms - session.contacted_ms < context.settings.session_timeout_ms


def _leave_behind(context: Context, existing: BrokerState, clean: bool) -> list[Message]:
    """What the end of the earlier incarnation means for its partitions, where that was not written when it ended."""
    if clean and existing.fenced:
        return []
    found = context.image.partitions_of(existing.broker_id)
    return list(broker_left(context, existing.broker_id, found, clean=clean or not context.elr_enabled))


def _check_features(context: Context, request: BrokerRegistrationRequest) -> None:
    supported = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    for name, level in context.image.features.items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise RemoteError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )


def _check_directories(context: Context, request: BrokerRegistrationRequest) -> None:
    if not context.has_directories:
        return
    if not request.log_dirs:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "No directories specified in request")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise RemoteError(ErrorCode.INVALID_REQUEST, "Broker logDirs contains duplicates")
    for broker_id, broker in context.image.brokers.items():
        shared = set(broker.log_dirs) & set(request.log_dirs)
        if broker_id != request.broker_id and shared:
            raise RemoteError(
                ErrorCode.INVALID_REGISTRATION, f"Broker {broker_id} is already registered with one of the log dirs"
            )


def register_controller(context: Context, request: ControllerRegistrationRequest) -> Decision:
    def refused(code: ErrorCode, message: str) -> Decision:
        return Decision(ControllerRegistrationResponse(error_code=code, error_message=message))

    if not versions.has_controller_registration(context.image.metadata_version):
        return refused(ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to register controllers.")
    if not request.listeners:
        return refused(ErrorCode.INVALID_REGISTRATION, "No listeners specified in request")
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in request.listeners
        ],
        features=[
            ControllerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
    )
    return Decision(ControllerRegistrationResponse(error_code=ErrorCode.NONE, error_message=None), [record])


def unregister_broker(context: Context, request: UnregisterBrokerRequest) -> Decision:
    broker = context.image.brokers.get(request.broker_id)
    if broker is None:
        return Decision(
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {request.broker_id} is not currently registered",
            )
        )
    found = context.image.partitions_of(broker.broker_id)
    records: list[Message] = list(broker_left(context, broker.broker_id, found, clean=True))
    records.append(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
    return Decision(UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None), records, atomic=False)


# -- heartbeats ----------------------------------------------------------------------------------------------------


def broker_heartbeat(context: Context, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int) -> Decision:
    try:
        broker = context.check_epoch(request.broker_id, request.broker_epoch)
    except RemoteError as error:
        return Decision(BrokerHeartbeatResponse(error_code=error.code, should_shut_down=False))
    session = context.sessions.get(request.broker_id)
    if session is None or session.epoch != broker.epoch:
        # Registered with an earlier controller: its registration lies at its epoch or a little after.
        session = context.sessions[request.broker_id] = Session(broker.epoch, broker.epoch, now_ms)
    session.contacted_ms = now_ms
    session.metadata_offset = request.current_metadata_offset
    caught_up = request.current_metadata_offset >= session.registered_at
    records: list[Message] = []
    fenced, shut_down = _next_state(context, broker, session, request, caught_up, records, next_offset)
    records += _directory_changes(context, broker, request)
    response = BrokerHeartbeatResponse(
        error_code=ErrorCode.NONE, is_caught_up=caught_up, is_fenced=fenced, should_shut_down=shut_down
    )
    return Decision(response, records, atomic=len(records) == 1)


def _next_state(
    context: Context,
    broker: BrokerState,
    session: Session,
    request: BrokerHeartbeatRequest,
    caught_up: bool,
    records: list[Message],
    next_offset: int,
) -> tuple[bool, bool]:
    """Adds the records of the broker's next state; says whether it is then fenced, and whether it may go."""
    if broker.fenced:
        if request.want_shut_down:
            return True, True
        if request.want_fence or not caught_up:
            return True, False
        records += _unfence(context, broker)
        return False, False
    if broker.in_controlled_shutdown or (request.want_shut_down and not request.want_fence):
        if _leads_anything(context, broker.broker_id):
            if not broker.in_controlled_shutdown:
                records += _enter_shutdown(context, broker)
                session.shutdown_at = next_offset + len(records) - 1
            return False, False
        if session.shutdown_at > _known_by_all(context, broker.broker_id):
            return False, False
        records += fence(context, broker)
        return True, True
    if request.want_fence:
        records += fence(context, broker)
        return True, request.want_shut_down
    return False, False


def _unfence(context: Context, broker: BrokerState) -> list[Message]:
    unfenced = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=-1)
    return [unfenced, *broker_came(context, broker.broker_id)]


def _enter_shutdown(context: Context, broker: BrokerState) -> list[Message]:
    leaving = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
    )
    found = context.image.partitions_of(broker.broker_id)
    return [leaving, *broker_left(context, broker.broker_id, found, clean=True)]


def fence(context: Context, broker: BrokerState) -> list[Message]:
    """Takes a broker out: nobody is led by it or counts it in sync any more."""
    found = context.image.partitions_of(broker.broker_id)
    fenced = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=1)
    return [*broker_left(context, broker.broker_id, found, clean=True), fenced]


def _leads_anything(context: Context, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in context.image.partitions_of(broker_id))


def _known_by_all(context: Context, but: int) -> int:
    """The offset up to which every other active broker has replayed the metadata."""
    offsets = [
        context.sessions[broker_id].metadata_offset if broker_id in context.sessions else -1
        for broker_id, broker in context.image.brokers.items()
        if broker_id != but and broker.is_active
    ]
    return min(offsets, default=NEVER)


def _directory_changes(context: Context, broker: BrokerState, request: BrokerHeartbeatRequest) -> list[Message]:
    records: list[Message] = []
    offline = [directory for directory in request.offline_log_dirs if directory in broker.log_dirs]
    if offline and context.has_directories:
        online = [directory for directory in broker.log_dirs if directory not in offline]
        records += broker_left(context, broker.broker_id, _held_in(context, broker.broker_id, offline), clean=True)
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=online)
        )
    cordoned = request.cordoned_log_dirs
    if (
        cordoned is not None
        and versions.has_cordoned_directories(context.image.metadata_version)
        and broker.cordoned_log_dirs != tuple(cordoned)
    ):
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )
    return records


def _held_in(
    context: Context, broker_id: int, directories: list[bytes]
) -> Iterator[tuple[TopicState, int, PartitionState]]:
    for topic, index, partition in context.image.partitions_of(broker_id):
        if partition.directory_of(broker_id) in directories:
            yield topic, index, partition


# -- silence -------------------------------------------------------------------------------------------------------


def silent_brokers(context: Context, now_ms: int) -> list[Message]:
    """Fences the brokers whose session has expired. One that was never heard of gets a session from now on."""
    records: list[Message] = []
    for broker_id, broker in context.image.brokers.items():
        if broker.fenced:
            continue
        session = context.sessions.get(broker_id)
        if session is None:
            if broker_id != context.settings.node_id:
                context.sessions[broker_id] = Session(broker.epoch, broker.epoch, now_ms)
        elif now_ms - session.contacted_ms >= context.settings.session_timeout_ms:
            records += fence(context, broker)
    return records


def supported_features() -> list[BrokerFeature]:
    return [
        BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
