"""What an application is told of its partitions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.client.types import TopicPartition


class RebalanceListener:
    """Told when partitions come and go; always from within `poll` or `close`, never beside them.

    Any of the three may be a coroutine function with `AsyncConsumer`. Revoked partitions are still this consumer's
    while it is being told, so that it can commit; lost ones belong to somebody else already.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """These are new. Their positions can be set with `seek`."""
        return None

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """These are going to others."""
        return None

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """These went to others without asking. Unless told otherwise, that is the same."""
        return self.on_partitions_revoked(partitions)
