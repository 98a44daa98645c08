"""Every API of Kafka 4.3: its key, versions and listeners, and where its messages are declared.

The table below is all that an import reads; the module that declares an API's messages is imported when its request
or response class is first asked for.

Valid versions are those that can be read and written. What a broker advertises differs in two places: a version that
is not stable is left out unless asked for, and Produce is advertised from 0, because released librdkafka compresses
only when v0 is in the range (KAFKA-18659); Produce 0 to 2 are refused all the same.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from importlib import import_module
from typing import Final

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.schema import Message

NEVER: Final = 0x7FFF
"""First flexible version of an API that has none."""


class Listener(IntFlag):
    """Which kinds of listeners serve an API."""

    BROKER = 1
    CONTROLLER = 2


BROKER: Final = Listener.BROKER
CONTROLLER: Final = Listener.CONTROLLER


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api:
    """What there is to know about one API."""

    __slots__ = ("_request", "_response", "flexible_from", "key", "listeners", "max_version", "min_version", "name")

    def __init__(
        self, key: ApiKey, name: str, min_version: int, max_version: int, flexible_from: int, listeners: Listener
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_from = flexible_from
        self.listeners = listeners
        self._request: type[Message] | None = None
        self._response: type[Message] | None = None

    def __repr__(self) -> str:
        return f"<{self.name}, key {self.key.value}, v{self.min_version} to v{self.max_version}>"

    @property
    def request(self) -> type[Message]:
        if self._request is None:
            self._load()
        assert self._request is not None
        return self._request

    @property
    def response(self) -> type[Message]:
        if self._response is None:
            self._load()
        assert self._response is not None
        return self._response

    @property
    def module(self) -> str:
        """The module that declares this API's messages."""
        return f"mainstem.protocol.messages.k{self.key.value:02d}_{self.key.name.lower()}"

    def has_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def advertised(self, listener: Listener, unstable: bool = False) -> tuple[int, int] | None:
        """The first and last version to advertise on a listener; None when it does not serve this API.

        A broker leaves more out than this tells: Kafka has GetTelemetrySubscriptions and PushTelemetry only with a
        receiver of metrics configured.
        """
        if listener not in self.listeners:
            return None
        first, last = self.min_version, self.max_version
        if self.key in UNSTABLE_LATEST and not unstable:
            last -= 1
        if self.key is ApiKey.PRODUCE and listener is Listener.BROKER:
            first = 0
        return first, last

    def _load(self) -> None:
        module = import_module(self.module)
        self._request = getattr(module, f"{self.name}Request")
        self._response = getattr(module, f"{self.name}Response")


UNSTABLE_LATEST: Final = frozenset({ApiKey.INIT_PRODUCER_ID})
"""APIs whose latest version is advertised only with `unstable.api.versions.enable`."""

# Keys 4 to 7 belonged to APIs between brokers that Kafka 4.0 removed.
_TABLE: Final[list[tuple[int, str, int, int, int, Listener]]] = [
    # key, name, first and last version, first flexible version, listeners
    (0, "Produce", 3, 13, 9, BROKER),
    (1, "Fetch", 4, 18, 12, BROKER | CONTROLLER),
    (2, "ListOffsets", 1, 11, 6, BROKER),
    (3, "Metadata", 0, 13, 9, BROKER),
    (8, "OffsetCommit", 2, 10, 8, BROKER),
    (9, "OffsetFetch", 1, 10, 6, BROKER),
    (10, "FindCoordinator", 0, 6, 3, BROKER),
    (11, "JoinGroup", 0, 9, 6, BROKER),
    (12, "Heartbeat", 0, 4, 4, BROKER),
    (13, "LeaveGroup", 0, 5, 4, BROKER),
    (14, "SyncGroup", 0, 5, 4, BROKER),
    (15, "DescribeGroups", 0, 6, 5, BROKER),
    (16, "ListGroups", 0, 5, 3, BROKER),
    (17, "SaslHandshake", 0, 1, NEVER, BROKER | CONTROLLER),
    (18, "ApiVersions", 0, 4, 3, BROKER | CONTROLLER),
    (19, "CreateTopics", 2, 7, 5, BROKER | CONTROLLER),
    (20, "DeleteTopics", 1, 6, 4, BROKER | CONTROLLER),
    (21, "DeleteRecords", 0, 2, 2, BROKER),
    (22, "InitProducerId", 0, 6, 2, BROKER),
    (23, "OffsetForLeaderEpoch", 2, 4, 4, BROKER),
    (24, "AddPartitionsToTxn", 0, 5, 3, BROKER),
    (25, "AddOffsetsToTxn", 0, 4, 3, BROKER),
    (26, "EndTxn", 0, 5, 3, BROKER),
    (27, "WriteTxnMarkers", 1, 2, 1, BROKER),
    (28, "TxnOffsetCommit", 0, 5, 3, BROKER),
    (29, "DescribeAcls", 1, 3, 2, BROKER | CONTROLLER),
    (30, "CreateAcls", 1, 3, 2, BROKER | CONTROLLER),
    (31, "DeleteAcls", 1, 3, 2, BROKER | CONTROLLER),
    (32, "DescribeConfigs", 1, 4, 4, BROKER | CONTROLLER),
    (33, "AlterConfigs", 0, 2, 2, BROKER | CONTROLLER),
    (34, "AlterReplicaLogDirs", 1, 2, 2, BROKER),
    (35, "DescribeLogDirs", 1, 5, 2, BROKER),
    (36, "SaslAuthenticate", 0, 2, 2, BROKER | CONTROLLER),
    (37, "CreatePartitions", 0, 3, 2, BROKER | CONTROLLER),
    (38, "CreateDelegationToken", 1, 3, 2, BROKER | CONTROLLER),
    (39, "RenewDelegationToken", 1, 2, 2, BROKER | CONTROLLER),
    (40, "ExpireDelegationToken", 1, 2, 2, BROKER | CONTROLLER),
    (41, "DescribeDelegationToken", 1, 3, 2, BROKER | CONTROLLER),
    (42, "DeleteGroups", 0, 2, 2, BROKER),
    (43, "ElectLeaders", 0, 2, 2, BROKER | CONTROLLER),
    (44, "IncrementalAlterConfigs", 0, 1, 1, BROKER | CONTROLLER),
    (45, "AlterPartitionReassignments", 0, 1, 0, BROKER | CONTROLLER),
    (46, "ListPartitionReassignments", 0, 0, 0, BROKER | CONTROLLER),
    (47, "OffsetDelete", 0, 0, NEVER, BROKER),
    (48, "DescribeClientQuotas", 0, 1, 1, BROKER),
    (49, "AlterClientQuotas", 0, 1, 1, BROKER | CONTROLLER),
    (50, "DescribeUserScramCredentials", 0, 0, 0, BROKER | CONTROLLER),
    (51, "AlterUserScramCredentials", 0, 0, 0, BROKER | CONTROLLER),
    (52, "Vote", 0, 2, 0, CONTROLLER),
    (53, "BeginQuorumEpoch", 0, 1, 1, CONTROLLER),
    (54, "EndQuorumEpoch", 0, 1, 1, CONTROLLER),
    (55, "DescribeQuorum", 0, 2, 0, BROKER | CONTROLLER),
    (56, "AlterPartition", 2, 3, 0, CONTROLLER),
    (57, "UpdateFeatures", 0, 2, 0, BROKER | CONTROLLER),
    (58, "Envelope", 0, 0, 0, CONTROLLER),
    (59, "FetchSnapshot", 0, 1, 0, CONTROLLER),
    (60, "DescribeCluster", 0, 2, 0, BROKER | CONTROLLER),
    (61, "DescribeProducers", 0, 0, 0, BROKER),
    (62, "BrokerRegistration", 0, 4, 0, CONTROLLER),
    (63, "BrokerHeartbeat", 0, 2, 0, CONTROLLER),
    (64, "UnregisterBroker", 0, 0, 0, BROKER | CONTROLLER),
    (65, "DescribeTransactions", 0, 0, 0, BROKER),
    (66, "ListTransactions", 0, 2, 0, BROKER),
    (67, "AllocateProducerIds", 0, 0, 0, CONTROLLER),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0, BROKER),
    (69, "ConsumerGroupDescribe", 0, 1, 0, BROKER),
    (70, "ControllerRegistration", 0, 0, 0, CONTROLLER),
    (71, "GetTelemetrySubscriptions", 0, 0, 0, BROKER),
    (72, "PushTelemetry", 0, 0, 0, BROKER),
    (73, "AssignReplicasToDirs", 0, 0, 0, CONTROLLER),
    (74, "ListConfigResources", 0, 1, 0, BROKER),
    (75, "DescribeTopicPartitions", 0, 0, 0, BROKER),
    (76, "ShareGroupHeartbeat", 1, 1, 0, BROKER),
    (77, "ShareGroupDescribe", 1, 1, 0, BROKER),
    (78, "ShareFetch", 1, 2, 0, BROKER),
    (79, "ShareAcknowledge", 1, 2, 0, BROKER),
    (80, "AddRaftVoter", 0, 1, 0, BROKER | CONTROLLER),
    (81, "RemoveRaftVoter", 0, 0, 0, BROKER | CONTROLLER),
    (82, "UpdateRaftVoter", 0, 0, 0, CONTROLLER),
    (83, "InitializeShareGroupState", 0, 0, 0, BROKER),
    (84, "ReadShareGroupState", 0, 0, 0, BROKER),
    (85, "WriteShareGroupState", 0, 1, 0, BROKER),
    (86, "DeleteShareGroupState", 0, 0, 0, BROKER),
    (87, "ReadShareGroupStateSummary", 0, 1, 0, BROKER),
    (88, "StreamsGroupHeartbeat", 0, 0, 0, BROKER),
    (89, "StreamsGroupDescribe", 0, 0, 0, BROKER),
    (90, "DescribeShareGroupOffsets", 0, 1, 0, BROKER),
    (91, "AlterShareGroupOffsets", 0, 0, 0, BROKER),
    (92, "DeleteShareGroupOffsets", 0, 0, 0, BROKER),
]

APIS: Final[dict[int, Api]] = {row[0]: Api(ApiKey(row[0]), *row[1:]) for row in _TABLE}

FLEXIBLE_FROM: Final[list[int]] = [APIS[key].flexible_from if key in APIS else -1 for key in range(max(APIS) + 1)]
"""The first flexible version by key, -1 for keys without an API: what reading a header needs, made to be fast."""


def find_api(key: int) -> Api:
    """The API with that key; RemoteError when there is none, for which Kafka closes the connection."""
    api = APIS.get(key)
    if api is None:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"there is no API with key {key}")
    return api
