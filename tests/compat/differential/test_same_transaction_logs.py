"""Kafka and our broker do the same with the batches of transactions: what Produce refuses and takes, what readers find
while one is open and when topics or records go in the middle, and what is left when ids and producers have expired."""

import asyncio

import pytest

from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse
from mainstem.protocol.messages.k01_fetch import FetchResponse
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from mainstem.protocol.primitives import ZERO_UUID
from tests.compat.differential.recorded import Side, compare, until_ready
from tests.support.raw import fetch_request
from tests.support.transactions import TIMESTAMP, TxnClient, find_group, read_committed

pytestmark = [pytest.mark.campaign, pytest.mark.kafka, pytest.mark.timeout(300)]

both_versions = pytest.mark.parametrize("tv2", [False, True], ids=["tv1", "tv2"])


@pytest.mark.parametrize("version", [9, 11, 12])
def test_batches_that_are_taken_and_refused(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        topic = f"batches{version}"
        await side.topics(topic)
        client = await side.client(f"batches{version}", version == 12)

        async def send(label: str, request: ProduceRequest) -> None:
            await side.ask(label, request, version, ProduceResponse)

        def changed(**others: object) -> TxnClient:
            other = client.copy()
            for name, value in others.items():
                setattr(other, name, value)
            return other

        def batch(**options: object) -> ProduceRequest:
            request = client.copy().produce_request(topic, b"x")
            builder = BatchBuilder(**options)  # type: ignore[arg-type]
            builder.append(TIMESTAMP, None, b"x")
            request.topic_data[0].partition_data[0].records = builder.build()
            return request

        if not client.tv2:
            side.note("added", await client.add((topic, 0)))
        await send("from sequence 3 on", changed(sequences={(topic, 0): 3}).produce_request(topic, b"x"))
        await send("higher epoch", changed(epoch=client.epoch + 1).produce_request(topic, b"x"))
        await send("another producer", changed(producer_id=987_654).produce_request(topic, b"x"))
        await send("unknown id", changed(transactional_id="nobody").produce_request(topic, b"x"))
        for acks in (1, 2):
            request = client.copy().produce_request(topic, b"x")
            request.acks = acks
            await send(f"acks {acks}", request)
        request = client.copy().produce_request(topic, b"x")
        await send("the first", request)
        await send("the first again", request)
        client.sequences[topic, 0] = 1
        outside = batch(producer_id=client.producer_id, producer_epoch=client.epoch, base_sequence=1)
        await send("outside its transaction", outside)
        await send("of nobody, with an id", batch())
        request = client.copy().produce_request(topic, b"y")
        batches = request.topic_data[0].partition_data
        batches.append(PartitionProduceData(index=9, records=batches[0].records))
        await send("to an unknown partition, too", request)
        await side.describe("before its end", client)
        side.note("end", await client.end_and_wait())
        await side.describe("after its end", client)
        await send("to an unknown topic alone", client.copy().produce_request("odd", b"z"))
        await side.describe("of an unknown topic", client)
        side.note("committed", await read_committed(side.peer, topic))
        await side.producers("at last", topic)

    compare(ports, part)


@both_versions
def test_a_topic_that_is_deleted_in_the_middle(ports: tuple[int, int], tv2: bool) -> None:
    async def part(side: Side) -> None:
        gone, stays = f"gone{tv2}", f"stays{tv2}"
        await side.topics(gone, stays)
        client = await side.client(f"deleted{tv2}", tv2)
        await client.write(gone, b"lost")
        await client.write(stays, b"kept")
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=gone, topic_id=ZERO_UUID)], timeout_ms=5000)
        await side.ask("deletion", delete, 6, DeleteTopicsResponse)
        while not (code := await client.copy().send(gone, b"late")):
            await asyncio.sleep(0.05)
        side.note("send", code)
        if not tv2:
            side.note("add", await client.add((gone, 0)))
        await side.describe("before its end", client)
        side.note("end", await client.end_and_wait())
        await side.topics(gone)
        client.sequences.pop((gone, 0), None)
        await client.write(gone, b"anew")
        side.note("next end", await client.end_and_wait())
        side.note("committed", [await read_committed(side.peer, topic) for topic in (gone, stays)])

    compare(ports, part)


def test_records_that_are_deleted_in_the_middle(ports: tuple[int, int]) -> None:
    async def part(side: Side) -> None:
        await side.topics("cut")
        client = await side.client("cut")

        async def offsets(label: str) -> None:
            for isolation in (0, 1):
                for timestamp in (-1, -2, -3, -4, 0, TIMESTAMP, TIMESTAMP + 10**9):
                    wanted = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
                    topics = [ListOffsetsTopic(name="cut", partitions=wanted)]
                    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
                    answer = (await side.peer.ask(request, 8, ListOffsetsResponse)).topics[0].partitions[0]
                    found = (answer.error_code, answer.offset, answer.timestamp > 0, answer.leader_epoch)
                    side.note(f"{label}: offset of {min(timestamp - TIMESTAMP, timestamp)} for {isolation}", found)

        async def fetch(label: str, first: int, last: int) -> None:
            for offset in range(first, last):
                for isolation in (0, 1):
                    request = fetch_request("cut", offset, isolation_level=isolation)
                    answer = (await side.peer.ask(request, 12, FetchResponse)).responses[0].partitions[0]
                    aborted = answer.aborted_transactions
                    listed = None if aborted is None else [one.first_offset for one in aborted]
                    ends = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
                    found = (answer.error_code, *ends, listed, len(answer.records or b""))
                    side.note(f"{label}: fetch of {offset} for {isolation}", found)

        async def delete(offset: int) -> None:
            places = [DeleteRecordsPartition(partition_index=0, offset=offset)]
            request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="cut", partitions=places)], timeout_ms=3000)
            await side.ask(f"deletion up to {offset}", request, 2, DeleteRecordsResponse)

        await client.write("cut", b"1", b"2")
        await client.end_and_wait(commit=False)
        await client.write("cut", b"3", b"4")
        await offsets("open")
        await fetch("open", 0, 7)
        await delete(1)
        await offsets("cut in the aborted one")
        await fetch("cut in the aborted one", 0, 6)
        side.note("send", await client.send("cut", b"5"))
        side.note("end", await client.end_and_wait(commit=False))
        await offsets("ended")
        await fetch("ended", 0, 9)
        await side.producers("ended", "cut")
        await delete(-1)
        await offsets("empty")
        await side.producers("empty", "cut")

    compare(ports, part)


LATE = ("commit", "abort", "send", "add", "offset", "init")


@both_versions
@pytest.mark.parametrize("first", LATE)
def test_what_a_client_is_told_whose_time_was_up(ports: tuple[int, int], tv2: bool, first: str) -> None:
    async def part(side: Side) -> None:
        topic = group = f"late-{first}{tv2}"
        await side.topics(topic)
        await until_ready(lambda: find_group(side.peer, group))
        client = await side.client(f"late-{first}{tv2}", tv2)
        await client.init(timeout_ms=300)
        await client.write(topic, b"x")
        side.note("offset", await client.commit_offset(group, topic, 5))
        while (await client.describe()).transaction_state != "CompleteAbort":
            await asyncio.sleep(0.05)
        await side.describe("timed out", client)
        at = LATE.index(first)
        for what in (*LATE[at:], *LATE[:at]):
            late = client.copy()
            if what == "init":
                answer = await late.init(expected=(client.producer_id, client.epoch))
                code: object = answer.error_code
            elif what == "send":
                code = await late.send(topic, b"late")
            elif what == "add":
                code = await late.add((topic, 0))
            elif what == "offset":
                code = await late.commit_offset(group, topic, 9)
            else:
                code = await late.end_and_wait(what == "commit")
            side.note(what, (code, late.epoch, late.producer_id == client.producer_id))
            await side.describe(what, client)
        await client.init()
        await client.write(topic, b"new")
        side.note("end of the next", await client.end_and_wait())
        await side.producers("at last", topic)
        side.note("committed", await read_committed(side.peer, topic))

    compare(ports, part)


@both_versions
@pytest.mark.parametrize("kind", ["empty", "committed", "aborted", "open"])
def test_what_is_left_of_an_id_that_has_expired(forgetful: tuple[int, int], tv2: bool, kind: str) -> None:
    async def part(side: Side) -> None:
        topic, group = f"{kind}{tv2}", f"{kind}{tv2}"
        await side.topics(topic)
        await until_ready(lambda: find_group(side.peer, group))
        client = await side.client(f"{kind}{tv2}", tv2)
        if kind != "empty":
            await client.write(topic, b"x")
            side.note("offset", await client.commit_offset(group, topic, 5))
        if kind in ("committed", "aborted"):
            side.note("end", await client.end_and_wait(kind == "committed"))
        for _ in range(600 if kind != "open" else 60):
            if (await client.describe()).error_code:
                break
            await asyncio.sleep(0.1)
        await side.describe("at last", client)
        await side.producers("at last", topic)
        if kind == "open":
            side.note("send", await client.send(topic, b"more"))
            side.note("end", await client.end_and_wait())
            return
        for version in (0, 2, 4, 5):
            request = EndTxnRequest(
                transactional_id=client.transactional_id,
                producer_id=client.producer_id,
                producer_epoch=client.epoch,
                committed=True,
            )
            await side.ask("end", request, version, EndTxnResponse)
        side.note("add", await client.add((topic, 0)))
        side.note("send", await client.copy().send(topic, b"late"))
        side.note("send an offset", await client.copy().send_offset(group, topic, 9))
        back = client.copy()
        answer = await back.init(expected=(client.producer_id, client.epoch))
        side.note("init as before", (answer.error_code, answer.producer_epoch, back.producer_id == client.producer_id))
        await back.init()
        side.note("init", (back.epoch, back.producer_id == client.producer_id))
        await back.write(topic, b"new")
        side.note("end of the next", await back.end_and_wait())
        side.note("committed", await read_committed(side.peer, topic))

    compare(forgetful, part)


@both_versions
def test_a_producer_that_a_partition_has_forgotten_goes_on(forgetful: tuple[int, int], tv2: bool) -> None:
    async def part(side: Side) -> None:
        topic = f"quiet{tv2}"
        await side.topics(topic)
        client = await side.client(f"quiet{tv2}", tv2)
        for value in (b"1", b"2"):
            await client.write(topic, value)
            side.note("end", await client.end_and_wait())
        await asyncio.sleep(2.5)
        await side.producers("forgotten", topic)
        if not tv2:
            side.note("add", await client.add((topic, 0)))
        side.note("send", await client.send(topic, b"3"))
        side.note("end", await client.end_and_wait())
        side.note("committed", await read_committed(side.peer, topic))

    compare(forgetful, part)
