"""What the driver asks the cluster: which partitions there are, where they begin and end, how large they are.

Each function asks the brokers concerned at the same time and tries again where that can help. Isolation matters for the
end: with `read_committed` a partition ends at its last stable offset.
"""

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from mainstem.client.cluster import Cluster, CoordinatorKind
from mainstem.client.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NoBrokersAvailableError,
    ThrottlingQuotaExceededError,
    UnknownTopicOrPartitionError,
    raise_for,
)
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.fetch import FetchPartitionResponse, FetchResponse
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from mainstem.protocol.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from mainstem.spark.offsets import Offsets, Partition, name
from mainstem.spark.options import Topics

log = logging.getLogger(__name__)

READ_COMMITTED: Final = "read_committed"
_OFFSET_COMMIT_BY_NAME: Final = 9
TIMEOUT_MS: Final = 60_000
FIRST_CONTACT_MS: Final = 20_000
"""Where no broker has ever answered, the address is likely to be wrong, and who gave it is told sooner."""
APPEARS_WITHIN_S: Final = 2.0


def isolation(cluster: Cluster) -> int:
    return 1 if getattr(cluster.options, "isolation_level", "") == READ_COMMITTED else 0


async def reach(cluster: Cluster) -> None:
    """Returns when a broker answers, or has before: one that is only away for a while is waited for elsewhere."""
    if cluster.updates:
        return
    try:
        await cluster.retrying(cluster.any_node, FIRST_CONTACT_MS)
    except KafkaTimeoutError as error:
        why = error.__cause__.message if isinstance(error.__cause__, KafkaError) else error.message
        given = ", ".join(f"{host}:{port}" for host, port in cluster.options.addresses)
        raise NoBrokersAvailableError(
            f"kafka.bootstrap.servers: {given} did not answer in {FIRST_CONTACT_MS // 1000} s; start the broker, or "
            f"correct the address ({why})"
        ) from error


def only_partition(response: FetchResponse, where: Partition) -> FetchPartitionResponse:
    """What a fetch of one partition was answered with, whose own error is the caller's."""
    topic, number = where
    raise_for(int(response.error_code), "fetch", topic=topic, partition=number)
    if not response.topics:
        # Kafka has a client that is over its quota wait, and then answers with nothing at all.
        raise ThrottlingQuotaExceededError("this client is over its quota of bytes", topic=topic, partition=number)
    return response.topics[0].partitions[0]


async def partitions(cluster: Cluster, topics: Topics, option: str | None = None) -> list[Partition]:
    """Those that are there now. A topic that is named and not there is an error; a pattern may match nothing.

    `option` is what named the topics, for the sentence, where it was none of the source's own.
    """
    await reach(cluster)
    if topics.pattern:
        found = {
            topic: info
            for topic, info in (await cluster.all_topics()).items()
            if not info.is_internal and re.fullmatch(topics.pattern, topic)
        }
        return sorted((topic, number) for topic, info in found.items() for number in info.partitions)
    names = topics.names or tuple(dict.fromkeys(topic for topic, _ in topics.partitions))
    cluster.want(names)
    known = await _known(cluster, names, option or ("assign" if topics.partitions else "subscribe"))
    there = sorted((topic, number) for topic, count in known.items() for number in count)
    if not topics.partitions:
        return there
    for where in topics.partitions:
        if where not in there:
            raise ValueError(f"assign: there is no partition {name(where)}; {where[0]} has {len(known[where[0]])}")
    return list(topics.partitions)


async def _known(cluster: Cluster, names: Iterable[str], option: str) -> dict[str, list[int]]:
    """The partitions of topics. One that was just made takes a moment to appear; one that was misspelt never does."""
    began = asyncio.get_running_loop().time()

    async def attempt() -> dict[str, list[int]]:
        await cluster.update()
        known: dict[str, list[int]] = {}
        for topic in names:
            error = cluster.cache.errors.get(topic)
            is_missing = isinstance(error, UnknownTopicOrPartitionError)
            if is_missing and asyncio.get_running_loop().time() - began > APPEARS_WITHIN_S:
                raise ValueError(f"{option}: there is no topic {topic}; create it, or correct the name")
            if error is not None:
                raise error
            info = cluster.cache.topics.get(topic)
            if info is None:
                raise LeaderNotAvailableError("nothing is known of it yet", topic=topic)
            known[topic] = list(info.partitions)
        return known

    return await cluster.retrying(attempt, TIMEOUT_MS, f"finding {', '.join(names)}")


async def list_offsets(cluster: Cluster, wanted: Mapping[Partition, int], *, leaves_out_gone: bool = False) -> Offsets:
    """The offset for each: of the first record at or after a timestamp, -1 where there is none, or -2 / -1 as asked.

    With `leaves_out_gone`, partitions that were there and are no more are left out, once that has been so for a moment.
    """
    missing = dict(wanted)
    found: Offsets = {}
    began = asyncio.get_running_loop().time()

    async def attempt() -> None:
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for where in [*missing]:
            leader = cluster.leader(TopicPartition(*where))
            if leader is None:
                waited_s = asyncio.get_running_loop().time() - began
                if leaves_out_gone and waited_s > APPEARS_WITHIN_S and _is_gone(cluster, where):
                    del missing[where]
                    continue
                cluster.want([where[0]])
                cluster.request_update(now=True)
                raise LeaderNotAvailableError("it has no leader now", topic=where[0], partition=where[1])
            by_leader[leader.leader].append(where)
        outcomes = await asyncio.gather(
            *(_list_from(cluster, node, {where: missing[where] for where in some}) for node, some in by_leader.items()),
            return_exceptions=True,
        )
        failure: BaseException | None = None
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                failure = outcome
                continue
            offsets, error = outcome
            found.update(offsets)
            for where in offsets:
                missing.pop(where, None)
            failure = error or failure
        if failure is not None:
            # Topics that a pattern found are not asked for anew by themselves.
            cluster.want({topic for topic, _ in missing})
            raise failure

    if missing:
        await cluster.retrying(attempt, TIMEOUT_MS, "listing offsets")
    return found


def _is_gone(cluster: Cluster, where: Partition) -> bool:
    """Whether brokers said, when they were last asked, that it is not there."""
    topic, number = where
    if isinstance(cluster.cache.errors.get(topic), UnknownTopicOrPartitionError):
        return True
    info = cluster.cache.topics.get(topic)
    return info is not None and number not in info.partitions


async def _list_from(cluster: Cluster, node: int, wanted: Mapping[Partition, int]) -> tuple[Offsets, KafkaError | None]:
    connection = await cluster.node(node)
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for (topic, number), stamp in wanted.items():
        topics[topic].append(ListOffsetsPartition(partition_index=number, timestamp=stamp))
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation(cluster),
        topics=[ListOffsetsTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()],
    )
    answer = await connection.ask(request, ListOffsetsResponse)
    found: Offsets = {}
    failure: KafkaError | None = None
    for topic_answer in answer.topics:
        for part in topic_answer.partitions:
            try:
                raise_for(
                    part.error_code,
                    "listing offsets",
                    broker=connection.name,
                    topic=topic_answer.name,
                    partition=part.partition_index,
                )
            except KafkaError as error:
                failure = error
            else:
                found[topic_answer.name, part.partition_index] = part.offset
    return found, failure


async def log_sizes(cluster: Cluster, wanted: Iterable[Partition]) -> dict[Partition, int]:
    """How many bytes each log has at its leader. Empty where the brokers do not tell: it is only for planning."""
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, number in wanted:
        leader = cluster.leader(TopicPartition(topic, number))
        if leader is not None:
            by_leader[leader.leader][topic].append(number)

    async def ask(node: int, topics: Mapping[str, list[int]]) -> dict[Partition, int]:
        connection = await cluster.node(node)
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
        )
        answer = await connection.ask(request, DescribeLogDirsResponse)
        return {
            (topic.name, part.partition_index): part.partition_size
            for result in answer.results
            for topic in result.topics
            for part in topic.partitions
            if not part.is_future_key
        }

    outcomes = await asyncio.gather(*(ask(*each) for each in by_leader.items()), return_exceptions=True)
    sizes: dict[Partition, int] = {}
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            log.info("no sizes of logs, tasks are planned by a guess: %s", outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            sizes.update(outcome)
    return sizes


async def commit_to_group(cluster: Cluster, group: str, offsets: Offsets) -> None:
    """Notes progress for people and tools to see; a group with members of its own refuses, which is told."""

    async def attempt() -> None:
        connection = await cluster.coordinator(CoordinatorKind.GROUP, group)
        topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, number), offset in sorted(offsets.items()):
            topics[topic].append(
                OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
            )
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in topics.items()],
        )
        version = connection.version_for(ApiKey.OFFSET_COMMIT, _OFFSET_COMMIT_BY_NAME)
        answer = await connection.ask(request, OffsetCommitResponse, version=version)
        for topic_answer in answer.topics:
            for part in topic_answer.partitions:
                try:
                    raise_for(part.error_code, f"committing to group {group}", broker=connection.name)
                except KafkaError as error:
                    if error.is_lost_coordinator:
                        cluster.forget_coordinator(CoordinatorKind.GROUP, group)
                    raise

    await cluster.retrying(attempt, TIMEOUT_MS, f"committing progress to group {group}")
