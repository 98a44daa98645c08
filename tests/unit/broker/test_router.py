"""The router's promises about peers: none is left waiting by a mistake of ours."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.broker.context import RequestContext
from mainstem.broker.router import Router
from mainstem.protocol.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from mainstem.protocol.rpc import encode_request


class FakeExchange:
    chunks = None

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.connection = SimpleNamespace(listener_name="PLAINTEXT", peer="someone")
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_response_that_cannot_be_encoded_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def handle(broker: Any, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(throttle_time_ms=None, topics=[])  # type: ignore[arg-type]

    module: Any = SimpleNamespace(API_KEY=2, MIN_VERSION=1, MAX_VERSION=11, handle=handle)
    broker: Any = SimpleNamespace(loop=None)
    exchange: Any = FakeExchange(
        encode_request(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]), 5, 1, "test")[4:]
    )
    with caplog.at_level(logging.ERROR):
        Router(broker, {2: module}).dispatch(exchange)
    assert exchange.is_closed
    assert "failed to encode a response" in caplog.text
