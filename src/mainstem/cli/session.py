"""A command's conversation with a cluster: an admin while it runs, and an error at once where nobody answers."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uvloop

from mainstem.cli.failures import NOT_FOUND, UserError
from mainstem.cli.output import Output
from mainstem.client.admin import AsyncAdmin
from mainstem.client.errors import UnknownTopicOrPartitionError

T = TypeVar("T")


def output_for(given: argparse.Namespace) -> Output:
    return Output(is_json=given.json, color=False if given.no_color else None, is_quiet=getattr(given, "quiet", False))


def admin_options(given: argparse.Namespace) -> dict[str, Any]:
    """Those with which nothing takes longer than `--timeout`, the first connection among it."""
    return {
        "bootstrap_servers": given.bootstrap,
        "client_id": "mainstem-cli",
        "default_api_timeout_ms": given.timeout,
        "request_timeout_ms": max(1, min(given.timeout, 30_000)),
        "socket_connection_setup_timeout_ms": max(1, min(given.timeout, 10_000)),
    }


def with_admin(given: argparse.Namespace, story: Callable[[AsyncAdmin, Output], Awaitable[int]]) -> int:
    """Runs a story with an admin. The exit code is what it returns."""

    async def run() -> int:
        async with AsyncAdmin(**admin_options(given)) as admin:
            # Once, without a retry: whoever types a command wants to know now that nobody is there.
            await admin.connect()
            return await story(admin, output_for(given))

    return uvloop.run(run())


def require_topics(given: argparse.Namespace, topics: list[str], hint: str = "") -> dict[str, list[int]]:
    """The partitions of topics that a producer or a consumer is about to use; UserError where one is missing."""

    async def run() -> dict[str, list[int]]:
        async with AsyncAdmin(**admin_options(given)) as admin:
            await admin.connect()
            try:
                found = await admin.describe_topics(topics)
            except UnknownTopicOrPartitionError as error:
                raise UserError(f"there is no topic {error.topic}{hint}", NOT_FOUND) from error
            return {name: [each.partition for each in topic.partitions] for name, topic in found.items()}

    return uvloop.run(run())
