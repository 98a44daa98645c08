"""Bugs of what a topic has set for itself, and of what becomes of its records by that."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mainstem.broker import partitions
from mainstem.broker.partitions import Partitions
from mainstem.core.log import validation
from mainstem.core.log.config import parse_log_config
from mainstem.protocol import builder
from mainstem.protocol.batch import BatchView
from mainstem.protocol.records import Record, iterate_records

Reached = Callable[[], None]


def is_ignored(name: str) -> Callable[[pytest.MonkeyPatch, Reached], None]:
    """Our own: a topic's own setting counts for nothing, and the broker's does."""

    def put_back(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        def parse(settings: Mapping[str, str], defaults: Any = None) -> Any:
            if name in settings:
                reached()
            return parse_log_config({key: value for key, value in settings.items() if key != name}, defaults)

        patch.setattr(partitions, "parse_log_config", parse)

    return put_back


def headers_are_lost(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a batch that is stored with another codec is written anew, without the headers of its records."""

    def recompress(batch: BatchView, codec: int, level: Any = None, limit: int = 1 << 30, breathe: Any = None) -> bytes:
        records: list[Record] = []
        for record in iterate_records(batch, limit):
            if record.headers and record.value is not None:
                reached()
                record.headers = []
            records.append(record)
        return builder._rebuild(batch, records, codec, level, breathe)

    patch.setattr(validation, "recompress", recompress)


def new_settings_wait_for_a_start(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a setting that changes is acknowledged, and logs go by it from the next start on."""

    def reconfigure(self: Partitions, topic: str) -> None:
        reached()

    patch.setattr(Partitions, "_reconfigure", reconfigure)
