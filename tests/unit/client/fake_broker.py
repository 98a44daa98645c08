"""A broker made of a function: each request gets the bytes that the function gives for it, or nothing."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mainstem.protocol.headers import RequestHeader, read_request_header
from mainstem.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from mainstem.protocol.rpc import encode_response

Answer = Callable[[RequestHeader, bytes], bytes | None]


def versions(header: RequestHeader, *apis: tuple[int, int, int]) -> bytes:
    """An answer to ApiVersions that offers these."""
    keys = [ApiVersion(api_key=key, min_version=first, max_version=last) for key, first, last in apis]
    answer = ApiVersionsResponse(error_code=0, api_keys=keys)
    return encode_response(answer, header.api_version, header.correlation_id)


@asynccontextmanager
async def fake_broker(answer: Answer) -> AsyncIterator[int]:
    """Serves on a free port, which it gives. None for an answer says nothing; empty bytes close the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                reply = answer(read_request_header(frame), frame)
                if reply == b"":
                    break
                if reply is not None:
                    writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
