"""What people do with Kafka clients works with each of them: producing, consuming, groups and administration."""

import itertools
import time

import pytest

from tests.compat.drivers.client import Client, ClientError, Member, Received, Sent
from tests.compat.scenarios import eventually, new_name

pytestmark = pytest.mark.campaign

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def need(client: Client, *features: str) -> None:
    for feature in features:
        if feature in client.make.lacks:
            pytest.skip(client.make.lacks[feature])


def new_topic(client: Client, what: str, partitions: int = 1, **configs: str) -> str:
    topic = new_name(what)
    client.call(
        "create_topic",
        topic=topic,
        partitions=partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    return topic


def content(records: list[Received]) -> list[tuple[object, ...]]:
    return [(one.key, one.value, one.headers) for one in records]


def sent_content(records: list[Sent]) -> list[tuple[object, ...]]:
    return [(one.key, one.value, one.headers) for one in records]


def a_few(client: Client, count: int = 10) -> list[Sent]:
    """Records of every shape: with and without key, value, headers; empty ones; one that compresses well."""
    shapes = [
        Sent("plain"),
        Sent("", ""),
        Sent("keyed", "key"),
        Sent(None, "tombstone"),
        Sent("with headers", "key", (("a", "1"), ("b", ""))),
        Sent("long " * 2000, "long"),
        Sent("Привет, κόσμε", "ключ"),
    ]
    if "null_headers" not in client.make.lacks:
        shapes.append(Sent("null header", None, (("nothing", None),)))
    return [shapes[i % len(shapes)] for i in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_come_back_as_they_were(client: Client, codec: str) -> None:
    topic, sent = new_topic(client, f"shapes-{codec}"), a_few(client, 30)
    assert client.produce(topic, sent, codec=codec) == [(0, i) for i in range(30)]
    got = client.fetch(topic, 30)
    assert content(got) == sent_content(sent)
    assert [one.offset for one in got] == list(range(30))


@pytest.mark.parametrize(("acks", "idempotent"), [("0", False), ("1", False), ("all", False), ("all", True)])
def test_every_kind_of_acknowledgement(client: Client, acks: str, idempotent: bool) -> None:
    topic, sent = new_topic(client, f"acks-{acks}"), [Sent(str(i)) for i in range(50)]
    offsets = client.produce(topic, sent, acks=acks, idempotent=idempotent)
    assert offsets == [(0, -1 if acks == "0" else i) for i in range(50)]
    assert [one.value for one in client.fetch(topic, 50)] == [one.value for one in sent]


def test_consuming_from_an_offset_and_from_a_time(client: Client) -> None:
    topic, start = new_topic(client, "positions", partitions=2), int(time.time() * 1000) - 100_000
    sent = [Sent(str(i), partition=1, timestamp=start + i * 1000) for i in range(20)]
    client.produce(topic, sent)
    assert [one.value for one in client.fetch(topic, 5, 1, offset=15)] == ["15", "16", "17", "18", "19"]
    found = client.fetch(topic, 8, 1, timestamp=start + 11_500)
    assert [(one.value, one.timestamp) for one in found] == [(str(i), start + i * 1000) for i in range(12, 20)]
    assert client.call("offsets", topic=topic, partition=1) == {"earliest": 0, "latest": 20}
    assert client.call("offsets", topic=topic, partition=0) == {"earliest": 0, "latest": 0}


def test_a_topic_is_made_by_the_first_record_that_is_sent_to_it(client: Client) -> None:
    topic = new_name("auto")
    assert client.produce(topic, [Sent("first")]) == [(0, 0)]
    assert topic in client.call("list_topics")


def split(members: list[Member], partitions: int) -> list[list[int]]:
    """Waits until the members share the partitions, each once and nobody without."""

    def right(found: list[list[int]]) -> bool:
        return sorted(itertools.chain(*found)) == list(range(partitions)) and all(found)

    return eventually(lambda: [one.state().assignment for one in members], right)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_two_members_share_a_topic_and_one_takes_over_when_the_other_leaves(client: Client, assignor: str) -> None:
    if assignor == "cooperative-sticky":
        need(client, "cooperative")
    if assignor != "range":
        need(client, "assignors")
    if assignor == "sticky":
        need(client, "sticky")
    topic, group = new_topic(client, "shared", partitions=4), new_name("group")
    client.produce(topic, [Sent(f"{p}", partition=p) for p in range(4)])
    first = client.join("first", group, topic, assignor)
    assert split([first], 4) == [[0, 1, 2, 3]]
    second = client.join("second", group, topic, assignor)
    assert [len(one) for one in split([first, second], 4)] == [2, 2]
    assert client.call("describe_group", group=group) == {"state": "Stable", "members": 2}
    first.leave()
    assert split([second], 4) == [[0, 1, 2, 3]]
    client.produce(topic, [Sent(f"again {p}", partition=p) for p in range(4)])
    eventually(
        lambda: {one.value for one in second.state().records}, lambda got: got >= {f"again {p}" for p in range(4)}
    )
    second.leave()


def test_a_group_resumes_where_it_committed(client: Client) -> None:
    topic, group = new_topic(client, "resumed", partitions=2), new_name("group")
    client.produce(topic, [Sent(str(i), partition=i % 2) for i in range(20)])
    first = client.join("first", group, topic)
    eventually(lambda: first.state().records, lambda got: len(got) == 20)
    first.commit()
    first.leave()
    assert client.call("group_offsets", group=group) == {"0": 10, "1": 10}
    client.produce(topic, [Sent(str(i), partition=i % 2) for i in range(20, 30)])
    second = client.join("second", group, topic)
    got = eventually(lambda: second.state().records, lambda got: len(got) >= 10)
    assert sorted(int(one.value or "") for one in got) == list(range(20, 30))
    second.leave()


def test_a_static_member_comes_back_without_a_rebalance(client: Client) -> None:
    need(client, "static")
    topic, group = new_topic(client, "static", partitions=2), new_name("group")
    first = client.join("first", group, topic, instance="one")
    second = client.join("second", group, topic, instance="two")
    before = split([first, second], 2)
    first.leave()
    assert client.call("describe_group", group=group)["members"] == 2
    again = client.join("again", group, topic, instance="one")
    assert eventually(lambda: again.state().assignment, bool) == before[0]
    assert second.state().assignment == before[1]
    again.leave()
    second.leave()


def test_topics_are_made_described_grown_and_deleted(client: Client) -> None:
    topic = new_topic(client, "administered", partitions=2)
    assert topic in eventually(lambda: client.call("list_topics"), lambda topics: topic in topics)
    assert client.call("describe_topic", topic=topic) == {"partitions": 2, "leader": 1}
    with pytest.raises(ClientError, match=r"(?i)exist"):
        client.call("create_topic", topic=topic, partitions=1, configs={})
    client.call("create_partitions", topic=topic, total=5)
    assert eventually(lambda: client.call("describe_topic", topic=topic), lambda found: found["partitions"] == 5) == {
        "partitions": 5,
        "leader": 1,
    }
    client.call("delete_topic", topic=topic)
    eventually(lambda: client.call("list_topics"), lambda topics: topic not in topics)


def test_configs_of_a_topic_are_told_and_changed(client: Client) -> None:
    topic = new_topic(client, "configured", retention_ms="100000", cleanup_policy="compact")
    found = client.call("describe_topic_config", topic=topic)
    assert (found["retention.ms"], found["cleanup.policy"]) == ("100000", "compact")
    assert found["segment.bytes"] == "1073741824"
    client.call("alter_topic_config", topic=topic, configs={"retention.ms": "200000"})
    changed = eventually(
        lambda: client.call("describe_topic_config", topic=topic), lambda now: now["retention.ms"] == "200000"
    )
    assert set(changed) == set(found)
    with pytest.raises(ClientError):
        client.call("alter_topic_config", topic=topic, configs={"retention.ms": "soon"})


def test_groups_are_listed_described_and_deleted(client: Client) -> None:
    topic, group = new_topic(client, "grouped"), new_name("group")
    client.produce(topic, [Sent("one")])
    member = client.join("only", group, topic)
    eventually(lambda: member.state().records, bool)
    member.commit()
    assert group in client.call("list_groups")
    assert client.call("describe_group", group=group) == {"state": "Stable", "members": 1}
    member.leave()
    eventually(lambda: client.call("describe_group", group=group), lambda now: now == {"state": "Empty", "members": 0})
    need(client, "delete_group")
    client.call("delete_group", group=group)
    assert group not in client.call("list_groups")


def test_records_are_deleted_up_to_an_offset(client: Client) -> None:
    topic = new_topic(client, "cut")
    client.produce(topic, [Sent(str(i)) for i in range(10)])
    assert client.call("delete_records", topic=topic, partition=0, before=6) == 6
    assert client.call("offsets", topic=topic, partition=0) == {"earliest": 6, "latest": 10}
    assert [one.value for one in client.fetch(topic, 4)] == ["6", "7", "8", "9"]
