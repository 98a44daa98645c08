"""The admin on asyncio: everything about a cluster that is not records going in or out.

    async with AsyncAdmin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topics([NewTopic("orders", 3)])
        print(await admin.describe_topics(["orders"]))

What it can do stands by noun in the modules it is made of.
"""

from __future__ import annotations

from mainstem.client.admin_cluster import ClusterAdmin
from mainstem.client.admin_configs import ConfigsAdmin
from mainstem.client.admin_groups import GroupsAdmin
from mainstem.client.admin_records import RecordsAdmin
from mainstem.client.admin_topics import TopicsAdmin
from mainstem.client.admin_transactions import TransactionsAdmin


class AsyncAdmin(TopicsAdmin, ConfigsAdmin, GroupsAdmin, RecordsAdmin, TransactionsAdmin, ClusterAdmin):
    """Options are keyword arguments, by Kafka's names in Python's spelling: see `AdminOptions`."""
