"""The image: any snapshot of a prefix and the rest of the log make what the whole log makes (R11)."""

from random import Random

import pytest

from mainstem.core.controller.image import BROKER, TOPIC, ClusterImage, ImageDelta, ReplayError
from mainstem.core.controller.states import MIGRATING_DIRECTORY
from mainstem.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from mainstem.protocol.messages.record_framing import decode_metadata_record, metadata_record_types
from mainstem.protocol.schema import Message

DIRECTORY = bytes(range(16))


def topic_id(number: int) -> bytes:
    return bytes(12) + (1000 + number).to_bytes(4, "big")


def partition(number: int, index: int = 0, replicas: list[int] | None = None) -> PartitionRecord:
    nodes = [1] if replicas is None else replicas
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id(number),
        replicas=nodes,
        isr=nodes,
        removing_replicas=[],
        adding_replicas=[],
        leader=nodes[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY] * len(nodes),
    )


def broker(number: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=number,
        incarnation_id=topic_id(epoch),
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack=None,
        log_dirs=[DIRECTORY],
    )


def image_of(records: list[Message]) -> ClusterImage:
    image = ClusterImage()
    image.replay_all(records)
    return image


def snapshot(image: ClusterImage) -> list[bytes]:
    return list(image.encoded_records())


class RandomLog:
    """A log that a controller could have written, with every type of record in it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.image = ClusterImage()
        self.records: list[Message] = []
        self.made = 0

    def put(self, record: Message) -> None:
        self.image.replay(record)
        self.records.append(record)

    def number(self) -> int:
        self.made += 1
        return self.made

    def step(self) -> None:
        choice = self.rng.choice
        match self.rng.randrange(24):
            case 0 | 1:
                number = self.number()
                self.put(TopicRecord(name=f"t{number}", topic_id=topic_id(number)))
                for index in range(self.rng.randrange(1, 4)):
                    self.put(partition(number, index, self.rng.sample([1, 2, 3], self.rng.randrange(1, 4))))
            case 2 | 3 | 4 | 5 if self.image.topics:
                topic = choice(list(self.image.topics.values()))
                if topic.partitions:
                    self.put(self.partition_change(topic.topic_id, choice(list(topic.partitions))))
            case 6 if self.image.topics:
                self.put(RemoveTopicRecord(topic_id=choice(list(self.image.topics_by_id))))
            case 7 | 8:
                names = ["", "1", *self.image.topics]
                self.put(
                    ConfigRecord(
                        resource_type=choice([TOPIC, BROKER]),
                        resource_name=choice(names),
                        name=choice(["a", "b"]),
                        value=choice([None, "1", ""]),
                    )
                )
            case 9:
                self.put(FeatureLevelRecord(name=choice(["group.version", "x.y"]), feature_level=choice([0, 1, 2])))
            case 10:
                self.put(broker(choice([1, 2]), self.number()))
            case 11 | 12 if self.image.brokers:
                known = choice(list(self.image.brokers.values()))
                self.put(
                    choice(
                        [
                            FenceBrokerRecord(id=known.broker_id, epoch=known.epoch),
                            UnfenceBrokerRecord(id=known.broker_id, epoch=known.epoch),
                            BrokerRegistrationChangeRecord(
                                broker_id=known.broker_id,
                                broker_epoch=known.epoch,
                                fenced=choice([-1, 0, 1]),
                                in_controlled_shutdown=choice([0, 1]),
                                cordoned_log_dirs=choice([None, [], [DIRECTORY]]),
                            ),
                            UnregisterBrokerRecord(broker_id=known.broker_id, broker_epoch=known.epoch),
                        ]
                    )
                )
            case 13:
                end_points = [ControllerEndpoint(name="C", host="h", port=1, security_protocol=0)]
                self.put(
                    RegisterControllerRecord(
                        controller_id=choice([1, 2]),
                        incarnation_id=topic_id(self.number()),
                        zk_migration_ready=False,
                        end_points=end_points,
                        features=[],
                    )
                )
            case 14:
                self.put(ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=1000 * self.number()))
            case 15:
                self.put(
                    AccessControlEntryRecord(
                        id=topic_id(self.number()), resource_type=2, resource_name="t", pattern_type=3,
                        principal="User:a", host="*", operation=2, permission_type=3,
                    )
                )  # fmt: skip
            case 16 if self.image.acls:
                self.put(RemoveAccessControlEntryRecord(id=choice(list(self.image.acls))))
            case 17:
                entity = [EntityData(entity_type=kind, entity_name=choice([None, "", "a"])) for kind in ("user", "ip")]
                self.rng.shuffle(entity)
                self.put(ClientQuotaRecord(entity=entity, key=choice("kl"), value=2.5, remove=choice([True, False])))
            case 18:
                self.put(
                    UserScramCredentialRecord(
                        name=choice("ab"), mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
                    )
                )
            case 19 if self.image.scram:
                mechanism, name = choice(list(self.image.scram))
                self.put(RemoveUserScramCredentialRecord(name=name, mechanism=mechanism))
            case 20:
                self.put(
                    DelegationTokenRecord(
                        owner="o", requester="r", renewers=["x"], issue_timestamp=1, max_timestamp=2,
                        expiration_timestamp=3, token_id=choice("ab"),
                    )
                )  # fmt: skip
            case 21 if self.image.tokens:
                self.put(RemoveDelegationTokenRecord(token_id=choice(list(self.image.tokens))))
            case 22:
                self.put(
                    choice([NoOpRecord(), ZkMigrationStateRecord(zk_migration_state=0), ClearElrRecord(topic_name="")])
                )
            case 23:
                self.put(BeginTransactionRecord(name="t"))
                if choice([True, False]):
                    self.put(FeatureLevelRecord(name="in.transaction", feature_level=self.rng.randrange(3)))
                self.put(choice([EndTransactionRecord(), AbortTransactionRecord(reason="why")]))

    def partition_change(self, topic: bytes, index: int) -> PartitionChangeRecord:
        choice = self.rng.choice
        return PartitionChangeRecord(
            topic_id=topic,
            partition_id=index,
            isr=choice([None, [], [1], [2, 1]]),
            leader=choice([-2, -1, 1, 2]),
            leader_recovery_state=choice([-1, 0, 1]),
            eligible_leader_replicas=choice([None, [], [1]]),
            last_known_elr=choice([None, [], [3]]),
            adding_replicas=choice([None, [], [4]]),
            removing_replicas=choice([None, [], [5]]),
        )


def generate(seed: int, steps: int) -> list[Message]:
    log = RandomLog(seed)
    log.put(FeatureLevelRecord(name="metadata.version", feature_level=30))
    for _ in range(steps):
        log.step()
    return log.records


@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_of_any_prefix_and_the_rest_make_the_same_image(seed: int) -> None:
    log = generate(seed, 120)
    whole = snapshot(image_of(log))
    prefix = ClusterImage()
    for end in range(len(log) + 1):
        if not prefix.in_transaction:
            restored = image_of([decode_metadata_record(value)[0] for value in prefix.encoded_records()])
            restored.replay_all(log[end:])
            assert snapshot(restored) == whole, f"snapshot at {end}"
        if end < len(log):
            prefix.replay(log[end])


def test_the_random_logs_reach_every_type_of_record() -> None:
    seen = {type(record) for seed in range(5) for record in generate(seed, 120)}
    assert seen == set(metadata_record_types().values())


def test_a_leader_that_is_set_again_is_a_new_leader_epoch() -> None:
    image = image_of([TopicRecord(name="t", topic_id=topic_id(1)), partition(1)])
    image.replay(PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, leader=1))
    found = image.partition("t", 0)
    assert found is not None
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (1, 1, 1)
    image.replay(PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, isr=[1]))
    assert (found.leader_epoch, found.partition_epoch) == (1, 2)


def test_a_transaction_is_visible_as_a_whole_or_not_at_all() -> None:
    image = ClusterImage()
    image.replay_all([BeginTransactionRecord(name="one"), TopicRecord(name="t", topic_id=topic_id(1))])
    assert image.in_transaction
    assert not image.topics
    image.replay(AbortTransactionRecord())
    assert not image.topics
    delta = ImageDelta()
    image.replay_all(
        [BeginTransactionRecord(), TopicRecord(name="t", topic_id=topic_id(1)), partition(1), EndTransactionRecord()],
        delta,
    )
    assert list(image.topics) == ["t"]
    assert list(delta.topics) == [topic_id(1)]
    assert list(delta.partitions) == [(topic_id(1), 0)]


def test_a_topic_goes_with_its_config_and_leaves_the_delta() -> None:
    image = image_of([TopicRecord(name="t", topic_id=topic_id(1)), partition(1)])
    image.replay(ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="5"))
    delta = ImageDelta()
    image.replay(PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, leader=1), delta)
    image.replay(RemoveTopicRecord(topic_id=topic_id(1)), delta)
    assert not image.topics
    assert not image.configs
    assert image.partition_count == 0
    assert not delta.partitions
    assert delta.removed_topics[topic_id(1)].name == "t"


@pytest.mark.parametrize(
    "record",
    [
        partition(9),
        PartitionChangeRecord(topic_id=topic_id(9), partition_id=0),
        PartitionChangeRecord(topic_id=topic_id(1), partition_id=5),
        RemoveTopicRecord(topic_id=topic_id(9)),
        TopicRecord(name="t", topic_id=topic_id(9)),
        FenceBrokerRecord(id=7, epoch=1),
        FenceBrokerRecord(id=1, epoch=2),
        UnregisterBrokerRecord(broker_id=7, broker_epoch=1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2),
        RemoveAccessControlEntryRecord(id=topic_id(1)),
        RemoveUserScramCredentialRecord(name="a", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t"),
        ClearElrRecord(topic_name="other"),
        EndTransactionRecord(),
        AbortTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_what_is_not_there_is_an_error(record: Message) -> None:
    image = image_of([TopicRecord(name="t", topic_id=topic_id(1)), partition(1), broker(1, 5)])
    with pytest.raises(ReplayError):
        image.replay(record)


def test_a_partition_from_before_directories_is_where_it_always_was() -> None:
    record = partition(1, replicas=[1, 2])
    record.directories = []
    image = image_of([TopicRecord(name="t", topic_id=topic_id(1)), record])
    found = image.partition_by_id(topic_id(1), 0)
    assert found is not None
    assert found.directories == (MIGRATING_DIRECTORY, MIGRATING_DIRECTORY)


def test_ten_thousand_partitions_are_light() -> None:
    import tracemalloc

    values = []
    for number in range(100):
        values.append(TopicRecord(name=f"topic-{number}", topic_id=topic_id(number)).encode(0))
        values.extend(partition(number, index).encode(2) for index in range(100))
    tracemalloc.start()
    image = ClusterImage()
    for at, value in enumerate(values):
        cls: type[Message] = PartitionRecord if at % 101 else TopicRecord
        image.replay(cls.decode(value, 2 if at % 101 else 0))
    for number in range(100):
        for index in range(100):
            image.replay(PartitionChangeRecord(topic_id=topic_id(number), partition_id=index, leader=1))
    used_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert image.partition_count == 10_000
    assert used_bytes < 5_000_000
