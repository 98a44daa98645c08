"""The synchronous admin: the same methods as `AsyncAdmin`, each waiting for its answer.

    with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        admin.create_topics([NewTopic("orders", 3)])
        print(admin.describe_topics(["orders"]))

Each method is made from the one that it waits for, so that both have the same arguments, results and words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from mainstem.client.admin import AsyncAdmin
from mainstem.client.sync import loop_thread

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    @functools.wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._runner.run(method(self._async, *args, **kwargs))

    return call


class Admin:
    """Options are keyword arguments, by Kafka's names in Python's spelling: see `AdminOptions`."""

    def __init__(self, **options: Any) -> None:
        self._async = AsyncAdmin(**options)
        self._runner = loop_thread()
        self._runner.run(self._async.start())

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self._async.close())

    create_topics = _waiting(AsyncAdmin.create_topics)
    list_topics = _waiting(AsyncAdmin.list_topics)
    describe_topics = _waiting(AsyncAdmin.describe_topics)
    delete_topics = _waiting(AsyncAdmin.delete_topics)
    create_partitions = _waiting(AsyncAdmin.create_partitions)
    elect_leaders = _waiting(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _waiting(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _waiting(AsyncAdmin.list_partition_reassignments)

    describe_configs = _waiting(AsyncAdmin.describe_configs)
    alter_configs = _waiting(AsyncAdmin.alter_configs)
    list_config_resources = _waiting(AsyncAdmin.list_config_resources)

    list_groups = _waiting(AsyncAdmin.list_groups)
    describe_groups = _waiting(AsyncAdmin.describe_groups)
    delete_groups = _waiting(AsyncAdmin.delete_groups)
    remove_group_members = _waiting(AsyncAdmin.remove_group_members)
    list_group_offsets = _waiting(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _waiting(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = _waiting(AsyncAdmin.delete_group_offsets)

    list_offsets = _waiting(AsyncAdmin.list_offsets)
    beginning_offsets = _waiting(AsyncAdmin.beginning_offsets)
    end_offsets = _waiting(AsyncAdmin.end_offsets)
    delete_records = _waiting(AsyncAdmin.delete_records)

    describe_producers = _waiting(AsyncAdmin.describe_producers)
    list_transactions = _waiting(AsyncAdmin.list_transactions)
    describe_transactions = _waiting(AsyncAdmin.describe_transactions)
    abort_transaction = _waiting(AsyncAdmin.abort_transaction)
    fence_producers = _waiting(AsyncAdmin.fence_producers)

    describe_cluster = _waiting(AsyncAdmin.describe_cluster)
    broker_versions = _waiting(AsyncAdmin.broker_versions)
    describe_features = _waiting(AsyncAdmin.describe_features)
    update_features = _waiting(AsyncAdmin.update_features)
    describe_log_dirs = _waiting(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = _waiting(AsyncAdmin.alter_replica_log_dirs)
    describe_quorum = _waiting(AsyncAdmin.describe_quorum)
    unregister_broker = _waiting(AsyncAdmin.unregister_broker)
