"""A command's conversation with a cluster: an admin while it runs, and an error at once where nobody answers."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from mainstem.cli.output import Output
from mainstem.client.admin import AsyncAdmin

T = TypeVar("T")


def output_for(given: argparse.Namespace) -> Output:
    return Output(is_json=given.json, color=False if given.no_color else None, is_quiet=getattr(given, "quiet", False))


def with_admin(given: argparse.Namespace, story: Callable[[AsyncAdmin, Output], Awaitable[int]]) -> int:
    """Runs a story with an admin. The exit code is what it returns."""

    async def run() -> int:
        async with AsyncAdmin(
            bootstrap_servers=given.bootstrap,
            client_id="mainstem-cli",
            default_api_timeout_ms=given.timeout,
            request_timeout_ms=max(1, min(given.timeout, 30_000)),
        ) as admin:
            # Once, without a retry: whoever types a command wants to know now that nobody is there.
            await admin.cluster.any_node()
            return await story(admin, output_for(given))

    return uvloop.run(run())
