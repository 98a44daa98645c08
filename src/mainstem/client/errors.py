"""What can go wrong for a client: one exception for each of Kafka's error codes, and those that only a client has.

The names are those of Kafka's Java exceptions with `Error` for `Exception`. Every one is a `KafkaError`, which says
where it happened (`broker`, `topic`, `partition`), what the broker called it (`code`) and whether doing the same again
can help (`retriable`); its text says all of that, because most people meet it in a log.

What a broker answers becomes an exception by `error_for`; nobody else makes one of a code.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mainstem.protocol.errors import ErrorCode

_STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Codes that say: what you believe about the cluster is no longer so (Java's InvalidMetadataException)."""

_LOST_COORDINATOR: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class KafkaError(Exception):
    """Anything that went wrong between this client and a cluster."""

    CODE: ClassVar[ErrorCode | None] = None
    RETRIABLE: ClassVar[bool] = False

    def __init__(
        self,
        message: str = "",
        *,
        broker: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        code: ErrorCode | None = None,
    ) -> None:
        self.message = message
        self.broker = broker
        self.topic = topic
        self.partition = partition
        self.code: ErrorCode | None = self.CODE if code is None else code
        super().__init__(message)

    @property
    def retriable(self) -> bool:
        """Whether doing the same again can help."""
        return self.RETRIABLE

    @property
    def is_stale_metadata(self) -> bool:
        """Whether the client should look anew who leads what before it tries again."""
        return self.code in _STALE_METADATA

    @property
    def is_lost_coordinator(self) -> bool:
        """Whether the client should ask anew who coordinates before it tries again."""
        return self.code in _LOST_COORDINATOR

    def __str__(self) -> str:
        name = self.code.name if self.code is not None else ""
        text = ": ".join(part for part in (name, self.message) if part) or type(self).__name__
        where = []
        if self.broker is not None:
            where.append(f"broker {self.broker}")
        if self.topic is not None:
            where.append(f"topic {self.topic}")
        if self.partition is not None:
            where.append(f"partition {self.partition}")
        if where:
            text += f" ({', '.join(where)})"
        return f"{text}; {'a retry can help' if self.retriable else 'a retry cannot help'}"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.message, self.broker, self.topic, self.partition, self.code)


def _restore(
    kind: type[KafkaError],
    message: str,
    broker: str | None,
    topic: str | None,
    partition: int | None,
    code: ErrorCode | None,
) -> KafkaError:
    return kind(message, broker=broker, topic=topic, partition=partition, code=code)


class KafkaTimeoutError(KafkaError, TimeoutError):
    """It did not happen in the time that was given for it."""

    RETRIABLE = True


class DisconnectedError(KafkaError, ConnectionError):
    """The connection ended before the answer came: whether the request was carried out is not known."""

    CODE = ErrorCode.NETWORK_EXCEPTION
    RETRIABLE = True


class NoBrokersAvailableError(KafkaError, ConnectionError):
    """No broker that is known could be connected to."""

    RETRIABLE = True


class BufferExhaustedError(KafkaTimeoutError):
    """There was no room in `buffer_memory` within `max_block_ms`: records come faster than the cluster takes them."""


class IllegalStateError(KafkaError, RuntimeError):
    """Called at a moment when it means nothing: a closed client, a transaction that was never begun."""


class InvalidOptionError(KafkaError, ValueError):
    """An option that there is not, or a value that it cannot have."""

    def __str__(self) -> str:
        return self.message


class SerializationError(KafkaError, ValueError):
    """A key or a value could not be turned into bytes, or back."""


class ConsumerFencedError(KafkaError):
    """Another consumer with the same `group_instance_id` has taken this one's place."""


class CommitFailedError(KafkaError):
    """The offsets were not committed, because the group gave the partitions to others in the meantime."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` is "none"."""


class LogTruncationError(KafkaError):
    """The log was cut below the position of the consumer: what it read there is no more.

    `divergent_offset` is the first offset at which the logs differ, -1 where the broker does not know.
    """

    def __init__(
        self,
        message: str = "",
        *,
        broker: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        code: ErrorCode | None = None,
        divergent_offset: int = -1,
    ) -> None:
        super().__init__(message, broker=broker, topic=topic, partition=partition, code=code)
        self.divergent_offset = divergent_offset


_BY_CODE: Final[dict[int, type[KafkaError]]] = {}


def _of(code: ErrorCode, name: str) -> type[KafkaError]:
    """The exception for a code. A line each below, so that editors and type checkers know the names."""
    content = {"__module__": __name__, "CODE": code, "RETRIABLE": code.retriable, "__doc__": f"Kafka's {code.name}."}
    kind = type(name, (KafkaError,), content)
    _BY_CODE[code] = kind
    return kind


UnknownServerError = _of(ErrorCode.UNKNOWN_SERVER_ERROR, "UnknownServerError")
OffsetOutOfRangeError = _of(ErrorCode.OFFSET_OUT_OF_RANGE, "OffsetOutOfRangeError")
CorruptRecordError = _of(ErrorCode.CORRUPT_MESSAGE, "CorruptRecordError")
UnknownTopicOrPartitionError = _of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionError")
InvalidFetchSizeError = _of(ErrorCode.INVALID_FETCH_SIZE, "InvalidFetchSizeError")
LeaderNotAvailableError = _of(ErrorCode.LEADER_NOT_AVAILABLE, "LeaderNotAvailableError")
NotLeaderOrFollowerError = _of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "NotLeaderOrFollowerError")
RequestTimedOutError = _of(ErrorCode.REQUEST_TIMED_OUT, "RequestTimedOutError")
BrokerNotAvailableError = _of(ErrorCode.BROKER_NOT_AVAILABLE, "BrokerNotAvailableError")
ReplicaNotAvailableError = _of(ErrorCode.REPLICA_NOT_AVAILABLE, "ReplicaNotAvailableError")
RecordTooLargeError = _of(ErrorCode.MESSAGE_TOO_LARGE, "RecordTooLargeError")
ControllerMovedError = _of(ErrorCode.STALE_CONTROLLER_EPOCH, "ControllerMovedError")
OffsetMetadataTooLargeError = _of(ErrorCode.OFFSET_METADATA_TOO_LARGE, "OffsetMetadataTooLargeError")
NetworkError = _of(ErrorCode.NETWORK_EXCEPTION, "NetworkError")
CoordinatorLoadInProgressError = _of(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "CoordinatorLoadInProgressError")
CoordinatorNotAvailableError = _of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "CoordinatorNotAvailableError")
NotCoordinatorError = _of(ErrorCode.NOT_COORDINATOR, "NotCoordinatorError")
InvalidTopicError = _of(ErrorCode.INVALID_TOPIC_EXCEPTION, "InvalidTopicError")
RecordBatchTooLargeError = _of(ErrorCode.RECORD_LIST_TOO_LARGE, "RecordBatchTooLargeError")
NotEnoughReplicasError = _of(ErrorCode.NOT_ENOUGH_REPLICAS, "NotEnoughReplicasError")
NotEnoughReplicasAfterAppendError = _of(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "NotEnoughReplicasAfterAppendError")
InvalidRequiredAcksError = _of(ErrorCode.INVALID_REQUIRED_ACKS, "InvalidRequiredAcksError")
IllegalGenerationError = _of(ErrorCode.ILLEGAL_GENERATION, "IllegalGenerationError")
InconsistentGroupProtocolError = _of(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "InconsistentGroupProtocolError")
InvalidGroupIdError = _of(ErrorCode.INVALID_GROUP_ID, "InvalidGroupIdError")
UnknownMemberIdError = _of(ErrorCode.UNKNOWN_MEMBER_ID, "UnknownMemberIdError")
InvalidSessionTimeoutError = _of(ErrorCode.INVALID_SESSION_TIMEOUT, "InvalidSessionTimeoutError")
RebalanceInProgressError = _of(ErrorCode.REBALANCE_IN_PROGRESS, "RebalanceInProgressError")
InvalidCommitOffsetSizeError = _of(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, "InvalidCommitOffsetSizeError")
TopicAuthorizationError = _of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TopicAuthorizationError")
GroupAuthorizationError = _of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "GroupAuthorizationError")
ClusterAuthorizationError = _of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ClusterAuthorizationError")
InvalidTimestampError = _of(ErrorCode.INVALID_TIMESTAMP, "InvalidTimestampError")
UnsupportedSaslMechanismError = _of(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "UnsupportedSaslMechanismError")
IllegalSaslStateError = _of(ErrorCode.ILLEGAL_SASL_STATE, "IllegalSaslStateError")
UnsupportedVersionError = _of(ErrorCode.UNSUPPORTED_VERSION, "UnsupportedVersionError")
TopicExistsError = _of(ErrorCode.TOPIC_ALREADY_EXISTS, "TopicExistsError")
InvalidPartitionsError = _of(ErrorCode.INVALID_PARTITIONS, "InvalidPartitionsError")
InvalidReplicationFactorError = _of(ErrorCode.INVALID_REPLICATION_FACTOR, "InvalidReplicationFactorError")
InvalidReplicaAssignmentError = _of(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "InvalidReplicaAssignmentError")
InvalidConfigurationError = _of(ErrorCode.INVALID_CONFIG, "InvalidConfigurationError")
NotControllerError = _of(ErrorCode.NOT_CONTROLLER, "NotControllerError")
InvalidRequestError = _of(ErrorCode.INVALID_REQUEST, "InvalidRequestError")
UnsupportedForMessageFormatError = _of(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "UnsupportedForMessageFormatError")
PolicyViolationError = _of(ErrorCode.POLICY_VIOLATION, "PolicyViolationError")
OutOfOrderSequenceError = _of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "OutOfOrderSequenceError")
DuplicateSequenceError = _of(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "DuplicateSequenceError")
InvalidProducerEpochError = _of(ErrorCode.INVALID_PRODUCER_EPOCH, "InvalidProducerEpochError")
InvalidTxnStateError = _of(ErrorCode.INVALID_TXN_STATE, "InvalidTxnStateError")
InvalidPidMappingError = _of(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "InvalidPidMappingError")
InvalidTxnTimeoutError = _of(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "InvalidTxnTimeoutError")
ConcurrentTransactionsError = _of(ErrorCode.CONCURRENT_TRANSACTIONS, "ConcurrentTransactionsError")
TransactionCoordinatorFencedError = _of(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "TransactionCoordinatorFencedError")
TransactionalIdAuthorizationError = _of(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "TransactionalIdAuthorizationError"
)
SecurityDisabledError = _of(ErrorCode.SECURITY_DISABLED, "SecurityDisabledError")
OperationNotAttemptedError = _of(ErrorCode.OPERATION_NOT_ATTEMPTED, "OperationNotAttemptedError")
KafkaStorageError = _of(ErrorCode.KAFKA_STORAGE_ERROR, "KafkaStorageError")
LogDirNotFoundError = _of(ErrorCode.LOG_DIR_NOT_FOUND, "LogDirNotFoundError")
SaslAuthenticationError = _of(ErrorCode.SASL_AUTHENTICATION_FAILED, "SaslAuthenticationError")
UnknownProducerIdError = _of(ErrorCode.UNKNOWN_PRODUCER_ID, "UnknownProducerIdError")
ReassignmentInProgressError = _of(ErrorCode.REASSIGNMENT_IN_PROGRESS, "ReassignmentInProgressError")
DelegationTokenDisabledError = _of(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "DelegationTokenDisabledError")
DelegationTokenNotFoundError = _of(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "DelegationTokenNotFoundError")
DelegationTokenOwnerMismatchError = _of(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "DelegationTokenOwnerMismatchError")
UnsupportedByAuthenticationError = _of(
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "UnsupportedByAuthenticationError"
)
DelegationTokenAuthorizationError = _of(
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "DelegationTokenAuthorizationError"
)
DelegationTokenExpiredError = _of(ErrorCode.DELEGATION_TOKEN_EXPIRED, "DelegationTokenExpiredError")
InvalidPrincipalTypeError = _of(ErrorCode.INVALID_PRINCIPAL_TYPE, "InvalidPrincipalTypeError")
GroupNotEmptyError = _of(ErrorCode.NON_EMPTY_GROUP, "GroupNotEmptyError")
GroupIdNotFoundError = _of(ErrorCode.GROUP_ID_NOT_FOUND, "GroupIdNotFoundError")
FetchSessionIdNotFoundError = _of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "FetchSessionIdNotFoundError")
InvalidFetchSessionEpochError = _of(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "InvalidFetchSessionEpochError")
ListenerNotFoundError = _of(ErrorCode.LISTENER_NOT_FOUND, "ListenerNotFoundError")
TopicDeletionDisabledError = _of(ErrorCode.TOPIC_DELETION_DISABLED, "TopicDeletionDisabledError")
FencedLeaderEpochError = _of(ErrorCode.FENCED_LEADER_EPOCH, "FencedLeaderEpochError")
UnknownLeaderEpochError = _of(ErrorCode.UNKNOWN_LEADER_EPOCH, "UnknownLeaderEpochError")
UnsupportedCompressionTypeError = _of(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "UnsupportedCompressionTypeError")
StaleBrokerEpochError = _of(ErrorCode.STALE_BROKER_EPOCH, "StaleBrokerEpochError")
OffsetNotAvailableError = _of(ErrorCode.OFFSET_NOT_AVAILABLE, "OffsetNotAvailableError")
MemberIdRequiredError = _of(ErrorCode.MEMBER_ID_REQUIRED, "MemberIdRequiredError")
PreferredLeaderNotAvailableError = _of(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "PreferredLeaderNotAvailableError")
GroupMaxSizeReachedError = _of(ErrorCode.GROUP_MAX_SIZE_REACHED, "GroupMaxSizeReachedError")
FencedInstanceIdError = _of(ErrorCode.FENCED_INSTANCE_ID, "FencedInstanceIdError")
EligibleLeadersNotAvailableError = _of(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "EligibleLeadersNotAvailableError")
ElectionNotNeededError = _of(ErrorCode.ELECTION_NOT_NEEDED, "ElectionNotNeededError")
NoReassignmentInProgressError = _of(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "NoReassignmentInProgressError")
GroupSubscribedToTopicError = _of(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "GroupSubscribedToTopicError")
InvalidRecordError = _of(ErrorCode.INVALID_RECORD, "InvalidRecordError")
UnstableOffsetCommitError = _of(ErrorCode.UNSTABLE_OFFSET_COMMIT, "UnstableOffsetCommitError")
ThrottlingQuotaExceededError = _of(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "ThrottlingQuotaExceededError")
ProducerFencedError = _of(ErrorCode.PRODUCER_FENCED, "ProducerFencedError")
ResourceNotFoundError = _of(ErrorCode.RESOURCE_NOT_FOUND, "ResourceNotFoundError")
DuplicateResourceError = _of(ErrorCode.DUPLICATE_RESOURCE, "DuplicateResourceError")
UnacceptableCredentialError = _of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "UnacceptableCredentialError")
InconsistentVoterSetError = _of(ErrorCode.INCONSISTENT_VOTER_SET, "InconsistentVoterSetError")
InvalidUpdateVersionError = _of(ErrorCode.INVALID_UPDATE_VERSION, "InvalidUpdateVersionError")
FeatureUpdateFailedError = _of(ErrorCode.FEATURE_UPDATE_FAILED, "FeatureUpdateFailedError")
PrincipalDeserializationError = _of(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "PrincipalDeserializationError")
SnapshotNotFoundError = _of(ErrorCode.SNAPSHOT_NOT_FOUND, "SnapshotNotFoundError")
PositionOutOfRangeError = _of(ErrorCode.POSITION_OUT_OF_RANGE, "PositionOutOfRangeError")
UnknownTopicIdError = _of(ErrorCode.UNKNOWN_TOPIC_ID, "UnknownTopicIdError")
DuplicateBrokerRegistrationError = _of(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "DuplicateBrokerRegistrationError")
BrokerIdNotRegisteredError = _of(ErrorCode.BROKER_ID_NOT_REGISTERED, "BrokerIdNotRegisteredError")
InconsistentTopicIdError = _of(ErrorCode.INCONSISTENT_TOPIC_ID, "InconsistentTopicIdError")
InconsistentClusterIdError = _of(ErrorCode.INCONSISTENT_CLUSTER_ID, "InconsistentClusterIdError")
TransactionalIdNotFoundError = _of(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "TransactionalIdNotFoundError")
FetchSessionTopicIdError = _of(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "FetchSessionTopicIdError")
IneligibleReplicaError = _of(ErrorCode.INELIGIBLE_REPLICA, "IneligibleReplicaError")
NewLeaderElectedError = _of(ErrorCode.NEW_LEADER_ELECTED, "NewLeaderElectedError")
OffsetMovedToTieredStorageError = _of(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, "OffsetMovedToTieredStorageError")
FencedMemberEpochError = _of(ErrorCode.FENCED_MEMBER_EPOCH, "FencedMemberEpochError")
UnreleasedInstanceIdError = _of(ErrorCode.UNRELEASED_INSTANCE_ID, "UnreleasedInstanceIdError")
UnsupportedAssignorError = _of(ErrorCode.UNSUPPORTED_ASSIGNOR, "UnsupportedAssignorError")
StaleMemberEpochError = _of(ErrorCode.STALE_MEMBER_EPOCH, "StaleMemberEpochError")
MismatchedEndpointTypeError = _of(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "MismatchedEndpointTypeError")
UnsupportedEndpointTypeError = _of(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "UnsupportedEndpointTypeError")
UnknownControllerIdError = _of(ErrorCode.UNKNOWN_CONTROLLER_ID, "UnknownControllerIdError")
UnknownSubscriptionIdError = _of(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "UnknownSubscriptionIdError")
TelemetryTooLargeError = _of(ErrorCode.TELEMETRY_TOO_LARGE, "TelemetryTooLargeError")
InvalidRegistrationError = _of(ErrorCode.INVALID_REGISTRATION, "InvalidRegistrationError")
TransactionAbortableError = _of(ErrorCode.TRANSACTION_ABORTABLE, "TransactionAbortableError")
InvalidRecordStateError = _of(ErrorCode.INVALID_RECORD_STATE, "InvalidRecordStateError")
ShareSessionNotFoundError = _of(ErrorCode.SHARE_SESSION_NOT_FOUND, "ShareSessionNotFoundError")
InvalidShareSessionEpochError = _of(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "InvalidShareSessionEpochError")
FencedStateEpochError = _of(ErrorCode.FENCED_STATE_EPOCH, "FencedStateEpochError")
InvalidVoterKeyError = _of(ErrorCode.INVALID_VOTER_KEY, "InvalidVoterKeyError")
DuplicateVoterError = _of(ErrorCode.DUPLICATE_VOTER, "DuplicateVoterError")
VoterNotFoundError = _of(ErrorCode.VOTER_NOT_FOUND, "VoterNotFoundError")
InvalidRegularExpressionError = _of(ErrorCode.INVALID_REGULAR_EXPRESSION, "InvalidRegularExpressionError")
RebootstrapRequiredError = _of(ErrorCode.REBOOTSTRAP_REQUIRED, "RebootstrapRequiredError")
StreamsInvalidTopologyError = _of(ErrorCode.STREAMS_INVALID_TOPOLOGY, "StreamsInvalidTopologyError")
StreamsInvalidTopologyEpochError = _of(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "StreamsInvalidTopologyEpochError")
StreamsTopologyFencedError = _of(ErrorCode.STREAMS_TOPOLOGY_FENCED, "StreamsTopologyFencedError")
ShareSessionLimitReachedError = _of(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "ShareSessionLimitReachedError")


def error_for(
    code: int,
    message: str | None = "",
    *,
    broker: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
) -> KafkaError:
    """The exception for an error code of a response; a code that we do not know is an UnknownServerError."""
    kind = _BY_CODE.get(code)
    if kind is None:
        message = f"error code {code}: {message}" if message else f"error code {code}, which this client does not know"
        kind = UnknownServerError
    return kind(message or "", broker=broker, topic=topic, partition=partition)


def raise_for(
    code: int,
    message: str | None = "",
    *,
    broker: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
) -> None:
    """Raises what `error_for` gives, unless the code is 0."""
    if code != 0:
        raise error_for(code, message, broker=broker, topic=topic, partition=partition)
