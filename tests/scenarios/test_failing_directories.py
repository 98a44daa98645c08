"""A node of two log directories, on a disk in memory that fails in one of them."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from mainstem.broker.app import Broker
from mainstem.broker.drivers.controller import Carry, Deliver, carry_directly
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from mainstem.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from mainstem.protocol.messages.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from mainstem.protocol.records import iterate_records
from mainstem.protocol.schema import ZERO_UUID, Message
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.checkpoint import RECOVERY_POINTS
from tests.support.raw import Peer, batch_of, connect, produce_request, start_node

METADATA, OTHER = "/data/a", "/data/b"
TIME_S_MAX = 30


def run(
    scenario: Callable[[Broker, Peer, SimDisk, list[BaseException]], Awaitable[None]],
    dirs: str,
    carry: Carry = carry_directly,
) -> None:
    async def story() -> None:
        disk = SimDisk(Random(1))
        fatal: list[BaseException] = []
        node = await start_node("/data", disk, fatal.append, carry, log_dirs=dirs)
        peer = await connect(node)
        try:
            await scenario(node, peer, disk, fatal)
        finally:
            peer.close()
            if not fatal:
                await node.stop()

    asyncio.run(asyncio.wait_for(story(), TIME_S_MAX))


async def create(peer: Peer, name: str, partitions: int = 1, cleanup_policy: str = "delete") -> None:
    configs = [CreatableTopicConfig(name="cleanup.policy", value=cleanup_policy)]
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs),
    ]
    answer = await peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=5000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


async def delete(peer: Peer, name: str) -> None:
    topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID)]
    answer = await peer.ask(DeleteTopicsRequest(topics=topics, timeout_ms=5000), 6, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0, answer


async def until(what: str, condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(what)


def directory_of(node: Broker, topic: str, index: int = 0) -> str:
    found = node.partitions.dirs.directory_of(topic, index)
    assert found is not None
    return found.path


async def one_in_each(node: Broker, peer: Peer) -> tuple[str, str]:
    """Two topics, the first in the directory of the metadata; the controller knows where they are."""
    for name in ("one", "two"):
        await create(peer, name)
    await until("the directories are known", lambda: known_directories(node))
    first, second = sorted(("one", "two"), key=lambda name: directory_of(node, name))
    assert (directory_of(node, first), directory_of(node, second)) == (METADATA, OTHER)
    return first, second


def known_directories(node: Broker) -> bool:
    ids = {one.path: one.directory_id for one in node.partitions.dirs.directories}
    return all(
        (state := node.image.partition(topic, 0)) is not None
        and state.directory_of(1) == ids[directory_of(node, topic)]
        for topic in ("one", "two")
    )


def everything_fails(path: str) -> Fault:
    return Fault(Effect.FAIL, path=lambda found: found.startswith(path), times=-1)


def fails_with_the_folders_of(topic: str, disk: SimDisk) -> Fault:
    """The other directory fails where the names of the topic's new folders would become durable in it."""

    def is_there(path: str) -> bool:
        return path == OTHER and any(disk.is_directory(f"{OTHER}/{topic}-{index}") for index in range(6))

    return Fault(Effect.FAIL, "sync_directory", path=is_there)


def test_a_directory_that_fails_leaves_the_other_serving_and_the_controller_learns() -> None:
    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        kept, lost = await one_in_each(node, peer)
        disk.faults.append(everything_fails(OTHER))
        assert (await peer.produce(lost, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await peer.produce(lost, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await peer.produce(kept, b"x")).error_code == ErrorCode.NONE
        await until("the controller knows", lambda: node.offline_replicas(node.image.topics[lost].partitions[0]) == [1])
        assert node.image.topics[lost].partitions[0].leader == -1
        assert node.image.topics[kept].partitions[0].leader == 1
        assert (await peer.produce(lost, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await peer.produce(kept, b"x")).base_offset == 1
        assert not fatal

    run(scenario, f"{METADATA},{OTHER}")


def test_what_the_controller_did_not_know_to_be_in_a_directory_that_fails_is_led_by_nobody() -> None:
    """KIP-858: the replica is unassigned, which counts as online, until the controller hears where it was."""
    lost_messages = 0

    async def carry(message: Message, version: int, deliver: Deliver) -> Message:
        nonlocal lost_messages
        if isinstance(message, AssignReplicasToDirsRequest) and lost_messages == 0:
            lost_messages += 1
            raise RemoteError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        return await deliver(message, version)

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        for name in ("one", "two"):
            await create(peer, name)
        kept, lost = sorted(("one", "two"), key=lambda name: directory_of(node, name))
        await until("the message was lost", lambda: lost_messages > 0)
        assert node.image.topics[lost].partitions[0].leader == 1
        disk.faults.append(everything_fails(OTHER))
        assert (await peer.produce(lost, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await until("the controller knows", lambda: node.image.topics[lost].partitions[0].leader == -1)
        assert node.offline_replicas(node.image.topics[lost].partitions[0]) == [1]
        assert (await peer.produce(kept, b"x")).error_code == ErrorCode.NONE

    run(scenario, f"{METADATA},{OTHER}", carry)


def test_a_directory_that_fails_while_a_partition_is_created_takes_its_others_along() -> None:
    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        kept, lost = await one_in_each(node, peer)
        disk.faults.append(Fault(Effect.FAIL, "make_directory", path=OTHER, times=-1))
        await create(peer, "three", partitions=4)
        await until("new partitions are elsewhere", lambda: all(node.partitions.get("three", i) for i in range(4)))
        assert {directory_of(node, "three", index) for index in range(4)} == {METADATA}
        assert node.partitions.get(lost, 0) is None
        assert (await peer.produce(lost, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await until("the controller knows", lambda: node.image.topics[lost].partitions[0].leader == -1)
        assert (await peer.produce(kept, b"x")).error_code == ErrorCode.NONE
        assert not fatal

    run(scenario, f"{METADATA},{OTHER}")


def test_a_start_finds_what_was_acknowledged_in_a_partition_that_another_directory_failed_to_take() -> None:
    """The directory that failed has a folder of it too, whole and empty, and the metadata names neither."""

    async def carry(message: Message, version: int, deliver: Deliver) -> Message:
        if isinstance(message, AssignReplicasToDirsRequest):
            raise RemoteError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        return await deliver(message, version)

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        disk.faults.append(fails_with_the_folders_of("log", disk))
        await create(peer, "log", partitions=2)
        await until("both are there", lambda: all(node.partitions.get("log", index) for index in range(2)))
        assert {directory_of(node, "log", index) for index in range(2)} == {METADATA}
        (twice,) = [index for index in range(2) if disk.is_directory(f"{OTHER}/log-{index}")]
        request = produce_request("log", batch_of(b"acknowledged"))
        request.topic_data[0].partition_data[0].index = twice
        answer = await peer.ask(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        killed = disk.fork()
        killed.kill()
        again = await start_node("/data", killed, log_dirs=f"{METADATA},{OTHER}")
        assert directory_of(again, "log", twice) == METADATA
        assert again.partitions.find("log", twice).log.log_end == 1
        await again.stop()
        assert not fatal

    run(scenario, f"{METADATA},{OTHER}", carry)


@pytest.mark.parametrize("dirs", [METADATA, f"{METADATA},{OTHER}"])
def test_a_start_without_a_directory_it_needs_says_which_and_why(dirs: str) -> None:
    """And never that it is ready, nor that it could not register."""

    async def story() -> None:
        disk = SimDisk(Random(1))
        fatal: list[BaseException] = []
        await (await start_node("/data", disk, fatal.append, log_dirs=dirs)).stop()
        file = disk.open(f"{METADATA}/{RECOVERY_POINTS}")
        file.truncate(0)
        file.write_at(0, [b"junk\n"])
        remedy = "remove the file, and the next start reads every log in the directory from its beginning"
        why = f"'junk' is not a number of 0 or more; {remedy}: '{METADATA}/{RECOVERY_POINTS}'"
        with pytest.raises(OSError, match=why):
            await start_node("/data", disk, fatal.append, log_dirs=dirs)
        assert len(fatal) == 1

    asyncio.run(asyncio.wait_for(story(), TIME_S_MAX))


def test_a_start_whose_metadata_cannot_be_written_says_what_the_disk_said() -> None:
    """It used to wait for ever, or to end in a traceback where it was a snapshot that could not be written."""

    async def story() -> None:
        disk = SimDisk(Random(1))
        fatal: list[BaseException] = []
        await (await start_node("/data", disk, fatal.append, log_dirs=METADATA)).stop()
        log = f"{METADATA}/__cluster_metadata-0/00000000000000000000.log"
        disk.faults.append(Fault(Effect.FAIL, "write", path=log, times=-1))
        with pytest.raises(OSError, match=f"simulated failure of write.*{log}"):
            await start_node("/data", disk, fatal.append, log_dirs=METADATA)
        assert len(fatal) == 1

    asyncio.run(asyncio.wait_for(story(), TIME_S_MAX))


def test_no_empty_folder_is_served_for_a_partition_whose_directory_is_offline() -> None:
    """One directory failed to take the partition, and has a folder of it, whole and empty; the next start finds that
    one in order, and not the one that took it."""
    third = "/data/c"
    dirs = f"{METADATA},{OTHER},{third}"

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        disk.faults.append(fails_with_the_folders_of("log", disk))
        await create(peer, "log", partitions=6)
        await until("all are there", lambda: all(node.partitions.get("log", index) for index in range(6)))
        twice = next(
            index
            for index in range(6)
            if directory_of(node, "log", index) == third and disk.is_directory(f"{OTHER}/log-{index}")
        )
        topic_id = node.image.topics["log"].topic_id
        await until("the directory is known", lambda: not node.assignments.is_wrong(topic_id, twice))
        request = produce_request("log", batch_of(b"acknowledged"))
        request.topic_data[0].partition_data[0].index = twice
        answer = await peer.ask(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        killed = disk.fork()
        killed.kill()
        killed.faults.append(Fault(Effect.FAIL, "list", path=lambda path: path == third))
        again = await start_node("/data", killed, log_dirs=dirs)
        assert [one.path for one in again.partitions.dirs.online] == [METADATA, OTHER]
        with pytest.raises(RemoteError) as refused:
            again.partitions.find("log", twice)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        await again.stop()
        healed = await start_node("/data", killed, log_dirs=dirs)
        assert directory_of(healed, "log", twice) == third
        assert healed.partitions.find("log", twice).log.log_end == 1
        await healed.stop()
        assert not fatal

    run(scenario, dirs)


def test_what_was_acknowledged_before_its_directory_was_known_is_not_made_anew_while_that_is_offline() -> None:
    """The metadata names no directory, and one that failed to take some of the partitions has empty folders of them."""
    third = "/data/c"
    dirs = f"{METADATA},{OTHER},{third}"

    async def carry(message: Message, version: int, deliver: Deliver) -> Message:
        if isinstance(message, AssignReplicasToDirsRequest):
            raise RemoteError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        return await deliver(message, version)

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        disk.faults.append(fails_with_the_folders_of("log", disk))
        await create(peer, "log", partitions=6)
        await until("all are there", lambda: all(node.partitions.get("log", index) for index in range(6)))
        taken = [index for index in range(6) if directory_of(node, "log", index) == third]
        assert {disk.is_directory(f"{OTHER}/log-{index}") for index in taken} == {True, False}
        for index in taken:
            request = produce_request("log", batch_of(b"acknowledged"))
            request.topic_data[0].partition_data[0].index = index
            answer = await peer.ask(request, 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        killed = disk.fork()
        killed.kill()
        killed.faults.append(Fault(Effect.FAIL, "list", path=lambda path: path == third))
        again = await start_node("/data", killed, log_dirs=dirs)
        assert [one.path for one in again.partitions.dirs.online] == [METADATA, OTHER]
        for index in taken:
            with pytest.raises(RemoteError) as refused:
                again.partitions.find("log", index)
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        await again.stop()
        healed = await start_node("/data", killed, log_dirs=dirs)
        for index in range(6):
            assert healed.partitions.find("log", index).log.log_end == (1 if index in taken else 0)
        assert {directory_of(healed, "log", index) for index in taken} == {third}
        await healed.stop()
        assert not fatal

    run(scenario, dirs, carry)


def test_nothing_is_acknowledged_by_a_moved_partition_that_a_start_would_not_find() -> None:
    """A move whose old folder cannot be set aside leaves two folders, of which a start takes the one that the metadata
    names: until that is the new one, what it took would be gone."""
    is_silent = False

    async def carry(message: Message, version: int, deliver: Deliver) -> Message:
        if isinstance(message, AssignReplicasToDirsRequest) and is_silent:
            raise RemoteError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        return await deliver(message, version)

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        nonlocal is_silent
        _, moving = await one_in_each(node, peer)
        acknowledged = [b"before"]
        assert (await peer.produce(moving, b"before")).error_code == ErrorCode.NONE
        is_silent = True
        old = f"{OTHER}/{moving}-0"
        disk.faults.append(Fault(Effect.FAIL, "rename", path=lambda path: path == old, times=-1))
        wanted = AlterReplicaLogDirTopic(name=moving, partitions=[0])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=METADATA, topics=[wanted])])
        begun = await peer.ask(request, 2, AlterReplicaLogDirsResponse)
        assert begun.results[0].partitions[0].error_code == ErrorCode.NONE
        await until("it has moved", lambda: directory_of(node, moving) == METADATA and not node.partitions.dirs.moves)
        if (await peer.produce(moving, b"meanwhile")).error_code == ErrorCode.NONE:
            acknowledged.append(b"meanwhile")
        killed = disk.fork()
        killed.kill()
        assert await values_after_a_start(killed, moving) == acknowledged
        is_silent = False
        await until("it is led", lambda: node.image.topics[moving].partitions[0].leader == 1)
        await until("it is served", lambda: node.partitions.find(moving, 0).leader is not None)
        assert (await peer.produce(moving, b"after")).error_code == ErrorCode.NONE
        killed = disk.fork()
        killed.kill()
        assert await values_after_a_start(killed, moving) == [*acknowledged, b"after"]
        assert not fatal

    run(scenario, f"{METADATA},{OTHER}", carry)


def test_a_node_starts_though_the_directory_that_a_partition_was_moving_to_fails() -> None:
    """The copy of an interrupted move is made anew by the start: what fails there was the end of it (seed 511114)."""

    async def carry(message: Message, version: int, deliver: Deliver) -> Message:
        if isinstance(message, AssignReplicasToDirsRequest):
            raise RemoteError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")  # so that no move comes to its end
        return await deliver(message, version)

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        for name in ("one", "two"):
            await create(peer, name)
        moving = next(name for name in ("one", "two") if directory_of(node, name) == METADATA)
        assert (await peer.produce(moving, b"value")).error_code == ErrorCode.NONE
        wanted = AlterReplicaLogDirTopic(name=moving, partitions=[0])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=OTHER, topics=[wanted])])
        begun = await peer.ask(request, 2, AlterReplicaLogDirsResponse)
        assert begun.results[0].partitions[0].error_code == ErrorCode.NONE
        killed = disk.fork()
        killed.kill()
        fault = Fault(Effect.FAIL, "rename", path=lambda path: path.startswith(f"{OTHER}/{moving}-0."), times=1)
        killed.faults.append(fault)
        assert await values_after_a_start(killed, moving) == [b"value"]
        assert fault.times == 0, "no copy was begun"

    run(scenario, f"{METADATA},{OTHER}", carry)


async def values_after_a_start(disk: SimDisk, topic: str) -> list[bytes | None]:
    node = await start_node("/data", disk, log_dirs=f"{METADATA},{OTHER}")
    peer = await connect(node)
    try:
        found = (await peer.fetch(topic, 0)).records or b""
    finally:
        peer.close()
        await node.stop()
    return [record.value for each in iterate_batches(found, 0, len(found)) for record in iterate_records(each)]


def test_a_directory_that_fails_while_a_start_makes_its_compacted_logs_durable_costs_itself_alone() -> None:
    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        await create(peer, "table", 4, "compact")
        for index in range(4):
            builder = BatchBuilder()
            builder.append(1, b"key", b"value")
            request = produce_request("table", builder.build())
            request.topic_data[0].partition_data[0].index = index
            answer = await peer.ask(request, 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        kept = [index for index in range(4) if directory_of(node, "table", index) == METADATA]
        assert len(kept) == 2
        killed = disk.fork()
        killed.kill()
        killed.faults.append(Fault(Effect.FAIL, "sync", path=lambda path: path.startswith(f"{OTHER}/table"), times=-1))
        again = await start_node("/data", killed, log_dirs=f"{METADATA},{OTHER}")
        assert [index for index in range(4) if again.partitions.get("table", index) is not None] == kept
        await again.stop()

    run(scenario, f"{METADATA},{OTHER}")


def test_a_client_that_is_told_of_a_failed_directory_finds_none_of_its_partitions_served() -> None:
    """The answer to a request brings the next one of the same client, in the same turn of the loop."""

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        await create(peer, "many", partitions=4)
        lost = [index for index in range(4) if directory_of(node, "many", index) == OTHER]
        assert len(lost) == 2
        codes: list[tuple[int, int]] = []
        batch = batch_of(b"x")

        def told(code: int) -> None:
            for index in lost:
                try:
                    node.partitions.find("many", index).append(batch, 0, len(batch))
                except RemoteError as error:
                    codes.append((code, error.code))

        for index in lost:
            node.partitions.find("many", index).when_committed(10, told)
        disk.faults.append(everything_fails(OTHER))
        request = produce_request("many", batch)
        request.topic_data[0].partition_data[0].index = lost[0]
        answer = await peer.ask(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert codes == [(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)] * 4

    run(scenario, f"{METADATA},{OTHER}")


def test_a_topic_whose_directory_failed_can_be_deleted_and_made_again() -> None:
    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        _, lost = await one_in_each(node, peer)
        disk.faults.append(everything_fails(OTHER))
        await peer.produce(lost, b"x")
        await delete(peer, lost)
        await create(peer, lost)
        await until("it is back", lambda: node.partitions.get(lost, 0) is not None)
        assert directory_of(node, lost) == METADATA
        assert (await peer.produce(lost, b"x")).base_offset == 0

    run(scenario, f"{METADATA},{OTHER}")


@pytest.mark.parametrize("dirs", [f"{METADATA},{OTHER}", METADATA], ids=["metadata", "last"])
def test_a_node_that_cannot_go_on_stops_serving(dirs: str) -> None:
    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        for name in ("one", "two"):
            await create(peer, name)
        inside = next(name for name in ("one", "two") if directory_of(node, name) == METADATA)
        disk.faults.append(everything_fails(f"{METADATA}/{inside}"))
        peer.send(produce_request(inside, batch_of(b"x")), 9)
        await until("it is over", lambda: bool(fatal))
        assert METADATA in str(fatal[0])
        # Whatever was answered before, the connection ends and nobody else gets one.
        await peer.reader.read()
        with pytest.raises(ConnectionError):
            await connect(node)

    run(scenario, dirs)


@pytest.mark.parametrize("dirs", [f"{METADATA},{OTHER}", METADATA], ids=["metadata", "last"])
def test_the_metadata_is_not_written_to_a_directory_in_which_another_log_has_failed(
    dirs: str, recwarn: pytest.WarningsRecorder
) -> None:
    """D5. The process is over a few turns of its loop later, and who was heard already was answered meanwhile."""

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        for name in ("one", "two"):
            await create(peer, name)
        inside = next(name for name in ("one", "two") if directory_of(node, name) == METADATA)
        disk.faults.append(everything_fails(f"{METADATA}/{inside}"))
        written: list[str] = []

        def look(operation: str, path: str, *_: int) -> None:
            if fatal and operation == "write" and path.startswith(METADATA):
                written.append(path)

        disk.on_operation = look
        other = await connect(node)
        topic = CreatableTopic(name="late", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        peer.send(produce_request(inside, batch_of(b"x")), 9)
        other.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        await until("it is over", lambda: bool(fatal))
        await peer.reader.read()
        await other.reader.read()
        other.close()
        assert not written

    run(scenario, dirs)
    assert "never awaited" not in "".join(str(each.message) for each in recwarn), "a request had not begun by then"


def test_a_mistake_of_ours_amid_an_append_costs_its_partition_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Once the batch is written, a retry would append it again: what is known of the log is not to be trusted."""

    async def scenario(node: Broker, peer: Peer, disk: SimDisk, fatal: list[BaseException]) -> None:
        await create(peer, "hit")
        await create(peer, "beside")
        much = b"x" * 5000  # more than lies between two entries of an index
        assert (await peer.produce("hit", much)).error_code == ErrorCode.NONE

        def fail(operation: str, path: str, position: int, size: int) -> None:
            if operation == "write" and "/hit-0/" in path and path.endswith(".index"):
                raise AssertionError("nobody has thought of this")

        disk.on_operation = fail
        for _ in range(2):
            assert (await peer.produce("hit", much)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await peer.produce("beside", much)).error_code == ErrorCode.NONE
        assert node.partitions.dirs.any_offline is False
        told = [record for record in caplog.records if "a log is offline" in record.getMessage()]
        assert len(told) == 1
        assert told[0].exc_info is not None
        assert isinstance(told[0].exc_info[1], AssertionError), "it says where that was"
        assert not fatal

    run(scenario, METADATA)
