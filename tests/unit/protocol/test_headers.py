"""Headers by hand are the declared ones; ApiVersions has its two exceptions; whole frames come and go."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.protocol.api import APIS, ApiKey
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.headers import (
    API_VERSIONS_KEY,
    API_VERSIONS_MAX,
    encode_request_header,
    encode_response_header,
    has_flexible_response_header,
    read_request_header,
    read_response_header,
)
from mainstem.protocol.messages import headers as declared
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from mainstem.protocol.rpc import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_unsupported_api_versions,
)

int32s = st.integers(-(2**31), 2**31 - 1)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), correlation_id=int32s, client_id=st.one_of(st.none(), st.text(max_size=200)))
def test_request_header_is_the_declared_one(data: st.DataObject, correlation_id: int, client_id: str | None) -> None:
    api = data.draw(st.sampled_from(list(APIS.values())))
    version = data.draw(st.integers(api.min_version, api.max_version))
    encoded = encode_request_header(api.key, version, correlation_id, client_id)
    expected = declared.RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    assert encoded == expected.encode(2 if api.is_flexible(version) else 1)
    header = read_request_header(encoded + b"body")
    assert (header.api_key, header.api_version, header.correlation_id) == (api.key, version, correlation_id)
    assert header.client_id == (client_id or "")
    assert header.body_at == len(encoded)


def test_response_header_follows_the_version_except_for_api_versions() -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            flexible = api.is_flexible(version) and api.key is not ApiKey.API_VERSIONS
            assert has_flexible_response_header(api.key, version) is flexible
            encoded = encode_response_header(api.key, version, -5)
            assert encoded == declared.ResponseHeader(correlation_id=-5).encode(int(flexible))
            assert read_response_header(encoded + b"body", flexible) == (-5, len(encoded))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    header = declared.RequestHeader(request_api_key=3, request_api_version=12, correlation_id=1, client_id="c")
    header.unknown_tags = {0: b"x" * 200, 7: b""}
    assert read_request_header(header.encode(2)).body_at == len(header.encode(2))
    answer = declared.ResponseHeader(correlation_id=1)
    answer.unknown_tags = {3: b"abc"}
    assert read_response_header(answer.encode(1), True) == (1, len(answer.encode(1)))


def test_a_client_id_that_is_not_utf8_is_mended() -> None:
    frame = b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x02\xffc"
    assert read_request_header(frame).client_id == "�c"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x03\x00\x01\x00\x00\x00\x07\x00",
        b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x05abc",  # a client id that passes the end
        b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xfe",  # of -2 bytes
        b"\x00\x03\x00\x0c\x00\x00\x00\x07\xff\xff",  # v2 without its tagged fields
        b"\x00\x03\x00\x0c\x00\x00\x00\x07\xff\xff\x01\x00\x05ab",
        b"\x00\x04\x00\x00\x00\x00\x00\x07\xff\xff",  # LeaderAndIsr, which is no more
        b"\x00\x5d\x00\x00\x00\x00\x00\x07\xff\xff",  # the key after the last
        b"\xff\xff\x00\x00\x00\x00\x00\x07\xff\xff",
    ],
)
def test_malformed_request_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(RemoteError):
        read_request_header(frame)


def test_a_client_id_has_its_limit() -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_request_header(3, 1, 1, "x" * 40_000)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_unknown_version_of_api_versions_is_answered_as_v0_with_the_range(version: int) -> None:
    """The bytes are what Kafka 4.3.1 answers to ApiVersions 5 and 99 (KIP-511)."""
    header = read_request_header(encode_request_header(18, version, 9, "new client") + b"\x01whatever")
    assert header.is_unsupported_api_versions
    answer = encode_unsupported_api_versions(header.correlation_id)
    assert answer[4:].hex() == "00000009002300000001001200000004"
    correlation_id, body = decode_response(answer[4:], 18, 0)
    assert correlation_id == 9
    assert isinstance(body, ApiVersionsResponse)
    assert body.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_known_versions_of_api_versions_are_not_mistaken() -> None:
    assert APIS[API_VERSIONS_KEY].max_version == API_VERSIONS_MAX
    for version in range(5):
        assert not read_request_header(encode_request_header(18, version, 9, None)).is_unsupported_api_versions
    assert not read_request_header(encode_request_header(3, 99, 9, None)).is_unsupported_api_versions


def test_requests_and_responses_travel_as_frames() -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"secret")
    frame = encode_request(request, 2, 77, "me")
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, decoded = decode_request(frame[4:])
    assert (header.correlation_id, header.client_id, decoded) == (77, "me", request)
    response = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"ok")
    frame = encode_response(response, 2, 77)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert decode_response(frame[4:], 36, 2) == (77, response)


def test_a_version_that_is_not_supported_is_told_apart_from_a_malformed_request() -> None:
    with pytest.raises(RemoteError) as caught:
        decode_request(encode_request_header(3, 14, 1, None))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(RemoteError) as caught:
        decode_request(encode_request(ApiVersionsRequest(), 3, 1, None)[4:-1])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
