import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import CorruptRecordError, DisconnectedError, KafkaTimeoutError, UnsupportedVersionError
from mainstem.protocol.api import ApiKey
from mainstem.protocol.headers import RequestHeader
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from mainstem.protocol.rpc import encode_request, encode_response, encode_unsupported_api_versions
from tests.unit.client.fake_broker import Answer, fake_broker, versions

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def run(answer: Answer, story: Callable[[BrokerConnection], Awaitable[None]]) -> None:
    async def act() -> None:
        async with fake_broker(answer) as port:
            connection = await BrokerConnection.open("127.0.0.1", port, "test", setup_timeout_s=5)
            try:
                await asyncio.wait_for(story(connection), 10)
            finally:
                connection.close()

    asyncio.run(act())


def beat(header: RequestHeader, code: int = 0) -> bytes:
    return encode_response(HeartbeatResponse(error_code=code), header.api_version, header.correlation_id)


def polite(header: RequestHeader, frame: bytes) -> bytes:
    return versions(header, (12, 0, 3), (18, 0, 4)) if header.api_key == 18 else beat(header)


def test_the_version_is_the_highest_that_both_speak() -> None:
    async def story(connection: BrokerConnection) -> None:
        assert connection.version_for(ApiKey.HEARTBEAT) == 3
        assert connection.version_for(ApiKey.HEARTBEAT, 1) == 1
        with pytest.raises(UnsupportedVersionError, match="Produce: the broker has no version"):
            connection.version_for(ApiKey.PRODUCE)
        assert (await connection.ask(HEARTBEAT, HeartbeatResponse)).error_code == 0

    run(polite, story)


def test_a_broker_with_an_older_api_versions_is_asked_again_in_a_version_it_knows() -> None:
    asked = []

    def answer(header: RequestHeader, frame: bytes) -> bytes:
        asked.append(header.api_version)
        if header.api_version > 2:
            refusal = ApiVersionsResponse(
                error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
            )
            return encode_response(refusal, 0, header.correlation_id)
        return versions(header, (12, 0, 1))

    async def story(connection: BrokerConnection) -> None:
        assert asked == [4, 2]
        assert connection.version_for(ApiKey.HEARTBEAT) == 1

    run(answer, story)


def test_our_own_refusal_of_api_versions_is_understood() -> None:
    async def act() -> None:
        def refuse(header: RequestHeader, frame: bytes) -> bytes:
            return encode_unsupported_api_versions(header.correlation_id)

        async with fake_broker(refuse) as port:
            with pytest.raises(UnsupportedVersionError):
                await BrokerConnection.open("127.0.0.1", port)

    asyncio.run(act())


def test_many_requests_are_in_flight_and_answers_find_theirs() -> None:
    codes = iter(range(1, 100))

    def answer(header: RequestHeader, frame: bytes) -> bytes:
        return polite(header, frame) if header.api_key == 18 else beat(header, next(codes))

    async def story(connection: BrokerConnection) -> None:
        asking = [asyncio.create_task(connection.ask(HEARTBEAT, HeartbeatResponse)) for _ in range(20)]
        assert [(await each).error_code for each in asking] == list(range(1, 21))
        assert connection.in_flight == 0

    run(answer, story)


def test_a_request_without_an_answer_in_time_ends_the_connection_for_all() -> None:
    def answer(header: RequestHeader, frame: bytes) -> bytes | None:
        return polite(header, frame) if header.api_key == 18 else None

    async def story(connection: BrokerConnection) -> None:
        later = asyncio.create_task(connection.ask(HEARTBEAT, HeartbeatResponse, timeout_s=5))
        with pytest.raises(KafkaTimeoutError, match=r"Heartbeat was not answered within 0\.05 s \(broker 127"):
            await connection.ask(HEARTBEAT, HeartbeatResponse, timeout_s=0.05)
        with pytest.raises(DisconnectedError, match="given up"):
            await later
        assert not connection.is_open
        with pytest.raises(DisconnectedError):
            await connection.ask(HEARTBEAT, HeartbeatResponse)

    run(answer, story)


def test_whoever_gives_up_waiting_leaves_the_order_of_answers_as_it_is() -> None:
    async def story(connection: BrokerConnection) -> None:
        given_up = asyncio.create_task(connection.ask(HEARTBEAT, HeartbeatResponse))
        await asyncio.sleep(0)
        given_up.cancel()
        assert (await connection.ask(HEARTBEAT, HeartbeatResponse)).error_code == 0
        assert connection.is_open

    run(polite, story)


def test_a_broker_that_hangs_up_is_a_disconnect_that_names_it() -> None:
    def answer(header: RequestHeader, frame: bytes) -> bytes:
        return polite(header, frame) if header.api_key == 18 else b""

    async def story(connection: BrokerConnection) -> None:
        with pytest.raises(DisconnectedError) as caught:
            await connection.ask(HEARTBEAT, HeartbeatResponse)
        assert caught.value.broker == f"127.0.0.1:{connection.port}"
        assert caught.value.retriable

    run(answer, story)


def test_an_answer_to_another_request_ends_the_connection() -> None:
    def answer(header: RequestHeader, frame: bytes) -> bytes:
        if header.api_key == 18:
            return polite(header, frame)
        return struct.pack(">iih", 6, header.correlation_id + 1, 0)

    async def story(connection: BrokerConnection) -> None:
        with pytest.raises(DisconnectedError, match="was due"):
            await connection.ask(HEARTBEAT, HeartbeatResponse)

    run(answer, story)


def test_an_answer_that_cannot_be_read_is_the_brokers_fault() -> None:
    def answer(header: RequestHeader, frame: bytes) -> bytes:
        return polite(header, frame) if header.api_key == 18 else struct.pack(">iib", 5, header.correlation_id, 0)

    async def story(connection: BrokerConnection) -> None:
        with pytest.raises(CorruptRecordError, match="makes no sense"):
            await connection.ask(HEARTBEAT, HeartbeatResponse)
        assert not connection.is_open

    run(answer, story)


def test_a_frame_in_pieces_is_answered_and_one_without_an_answer_waits_for_none() -> None:
    frame = encode_request(HEARTBEAT, 3, 0, "test")

    async def story(connection: BrokerConnection) -> None:
        assert len(await connection.send_frame(12, 3, [frame[:20], frame[20:]])) > 4
        unanswered = connection.send_frame(12, 3, [frame], is_answered=False)
        assert unanswered.done()
        assert connection.in_flight == 0

    run(polite, story)


def test_a_port_where_nobody_listens_is_a_disconnect() -> None:
    async def act() -> None:
        async with fake_broker(polite) as port:
            pass
        with pytest.raises(DisconnectedError, match="cannot connect"):
            await BrokerConnection.open("127.0.0.1", port)

    asyncio.run(act())


def test_a_broker_that_accepts_and_says_nothing_is_given_up() -> None:
    async def act() -> None:
        async with fake_broker(lambda header, frame: None) as port:
            with pytest.raises(KafkaTimeoutError, match=r"no connection within 0\.1 s"):
                await BrokerConnection.open("127.0.0.1", port, setup_timeout_s=0.1)

    asyncio.run(act())


def test_the_systems_buffers_have_the_sizes_that_were_asked_for() -> None:
    async def sizes(asked: tuple[int, int]) -> list[int]:
        async with fake_broker(polite) as port:
            connection = await BrokerConnection.open("127.0.0.1", port, "test", socket_buffers=asked)
            under = connection._transport.get_extra_info("socket")
            found = [under.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
            connection.close()
            return found

    # Linux doubles what it is told, for its own needs.
    assert asyncio.run(sizes((20_000, 30_000))) == [40_000, 60_000]
    assert asyncio.run(sizes((-1, 30_000)))[0] > 40_000
