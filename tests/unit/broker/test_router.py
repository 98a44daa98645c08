"""The router's promises about peers: none is left waiting by a mistake of ours."""

import asyncio
import struct
from pathlib import Path

import pytest

from mainstem.broker.apis import k02_list_offsets, k10_find_coordinator
from mainstem.broker.app import Broker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k01_fetch import FetchResponse
from mainstem.protocol.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from mainstem.protocol.messages.k03_metadata import MetadataRequest
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.rpc import encode_request
from tests.support.raw import Peer, connect, fetch_request, run_with_node


def test_a_handler_that_fails_ends_its_connection_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(broker: Broker, context: object, request: object) -> object:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(k02_list_offsets, "handle", broken)

    async def scenario(node: Broker, peer: Peer) -> None:
        peer.send(ListOffsetsRequest(replica_id=-1, topics=[]), 5)
        assert await asyncio.wait_for(peer.reader.read(), 5) == b""
        assert "failed to answer a request" in caplog.text
        other = await connect(node)
        answer = await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert answer.error_code == 0
        other.close()

    run_with_node(tmp_path, scenario)


def test_a_response_that_cannot_be_encoded_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def unwritable(broker: Broker, context: object, request: object) -> object:
        return ListOffsetsResponse(throttle_time_ms=None, topics=[])  # type: ignore[arg-type]

    monkeypatch.setattr(k02_list_offsets, "handle", unwritable)

    async def scenario(node: Broker, peer: Peer) -> None:
        peer.send(ListOffsetsRequest(replica_id=-1, topics=[]), 5)
        assert await asyncio.wait_for(peer.reader.read(), 5) == b""
        assert "failed to encode a response" in caplog.text

    run_with_node(tmp_path, scenario)


def test_an_error_that_a_version_has_no_place_for_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 149: it was put into the answer all the same, which could not be encoded."""

    async def refusing(broker: Broker, context: object, request: object) -> object:
        raise RemoteError(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer")

    monkeypatch.setattr(k10_find_coordinator, "handle", refusing)

    async def scenario(node: Broker, peer: Peer) -> None:
        answer = await peer.ask(FindCoordinatorRequest(key="g", key_type=0), 3, FindCoordinatorResponse)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        peer.send(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
        assert await asyncio.wait_for(peer.reader.read(), 5) == b""
        assert "ended a connection" in caplog.text
        assert "failed to encode a response" not in caplog.text

    run_with_node(tmp_path, scenario)


def test_who_asks_for_a_coordinator_that_cannot_be_made_is_told_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 149: a controller that did not answer in time ended the connection of who had asked."""

    async def scenario(node: Broker, peer: Peer) -> None:
        async def ensure(topic: str) -> ErrorCode:
            raise RemoteError(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer")

        monkeypatch.setattr(node.topic_creation, "ensure", ensure)
        for version in (3, 4):
            request = FindCoordinatorRequest(key_type=0)
            if version < 4:
                request.key = "g"
            else:
                request.coordinator_keys = ["g"]
            answer = await peer.ask(request, version, FindCoordinatorResponse)
            found = answer if version < 4 else answer.coordinators[0]
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run_with_node(tmp_path, scenario)


def test_an_unknown_version_of_api_versions_is_answered_and_of_others_ends_the_connection(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        frame = bytearray(encode_request(ApiVersionsRequest(client_software_name="a"), 4, 7, "test"))
        frame[6:8] = struct.pack(">h", 99)
        peer.writer.write(bytes(frame))
        answer = await peer.receive(ApiVersionsResponse, 0)
        assert (answer.error_code, answer.api_keys[0].api_key) == (35, 18)
        frame = bytearray(encode_request(ListOffsetsRequest(replica_id=-1, topics=[]), 5, 8, "test"))
        frame[6:8] = struct.pack(">h", 99)
        peer.writer.write(bytes(frame))
        assert await asyncio.wait_for(peer.reader.read(), 5) == b""

    run_with_node(tmp_path, scenario)


def test_a_controllers_listener_serves_what_controllers_serve_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        port = node.bound_port("CONTROLLER")
        controller = Peer(*await asyncio.open_connection("127.0.0.1", port))
        answer = await controller.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert 3 not in [each.api_key for each in answer.api_keys]
        fetched = await controller.ask(fetch_request("orders", 0), 12, FetchResponse)
        assert fetched.error_code == ErrorCode.INVALID_REQUEST
        controller.send(MetadataRequest(topics=None), 9)
        assert await asyncio.wait_for(controller.reader.read(), 5) == b""
        assert "Metadata is not for CONTROLLER" in caplog.text
        controller.close()

    run_with_node(tmp_path, scenario)
