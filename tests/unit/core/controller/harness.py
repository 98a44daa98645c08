"""A controller whose decisions are replayed as they are made, and the brokers that talk to it."""

from mainstem.core.controller.context import SUPPORTED_FEATURES, ControllerSettings, Decision
from mainstem.core.controller.controller import Controller
from mainstem.core.controller.features import DEFAULT_FEATURES
from mainstem.core.controller.image import ClusterImage
from mainstem.core.controller.states import PartitionState
from mainstem.protocol.messages.k19_create_topics import CreateTopicsResponse
from mainstem.protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from mainstem.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from mainstem.protocol.messages.metadata_records import FeatureLevelRecord
from mainstem.protocol.schema import Message
from tests.compat.controller_requests import create, topic

SESSION_MS = 9000


def directory(broker_id: int) -> bytes:
    return bytes(14) + bytes([7, broker_id])


class Cluster:
    """The controller is node 1; `log` holds every record, so that it can be replayed again."""

    def __init__(self, *brokers: int, default_partitions: int = 1) -> None:
        self.log: list[Message] = []
        self.now_ms = 1_000_000
        self.epochs: dict[int, int] = {}
        self._ids = 0
        image = ClusterImage()
        settings = ControllerSettings(
            node_id=1,
            cluster_id="c",
            broker_lists={"log.cleanup.policy": "delete"},
            session_timeout_ms=SESSION_MS,
            default_partitions=default_partitions,
        )
        self.controller = Controller(image, settings, self._new_id)
        bootstrap = [FeatureLevelRecord(name=name, feature_level=level) for name, level in DEFAULT_FEATURES.items()]
        self.write(self.controller.activate(bootstrap))
        for broker_id in brokers:
            self.start(broker_id)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def _new_id(self) -> bytes:
        self._ids += 1
        return bytes(12) + (500 + self._ids).to_bytes(4, "big")

    def write(self, records: list[Message]) -> list[Message]:
        self.image.replay_all(records)
        self.log += records
        return records

    def decide(self, request: Message, version: int | None = None) -> Decision:
        number = type(request).MAX_VERSION if version is None else version
        decision = self.controller.handle(request, number, self.now_ms, len(self.log))
        self.write(decision.records)
        # Whatever is answered can be written.
        decision.response.encode(number)
        return decision

    def register(self, broker_id: int, incarnation: int = 1, previous_epoch: int = -1) -> int:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=bytes([incarnation]) * 16,
            listeners=[Listener(name="PLAINTEXT", host="h", port=9000 + broker_id, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=None,
            log_dirs=[directory(broker_id)],
            previous_broker_epoch=previous_epoch,
        )
        answer = self.decide(request).response
        assert isinstance(answer, BrokerRegistrationResponse)
        if answer.error_code == 0:
            self.epochs[broker_id] = answer.broker_epoch
        return answer.error_code

    def heartbeat(self, broker_id: int, **wants: bool) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=len(self.log) - 1,
            want_fence=wants.get("fence", False),
            want_shut_down=wants.get("shut_down", False),
            cordoned_log_dirs=[],
        )
        answer = self.decide(request).response
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    def start(self, broker_id: int, incarnation: int = 1, previous_epoch: int = -1) -> None:
        assert self.register(broker_id, incarnation, previous_epoch) == 0
        assert not self.heartbeat(broker_id).is_fenced

    def create(self, name: str, assignments: dict[int, list[int]] | None = None, **configs: str) -> None:
        keys: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = topic(name, -1 if assignments else 1, -1, assignments, keys)
        answer = self.decide(create(wanted)).response
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer

    def partition(self, name: str, index: int = 0) -> PartitionState:
        found = self.image.partition(name, index)
        assert found is not None
        return found
