"""`AsyncAdmin`: everything that an administrator asks of a cluster, on asyncio.

    async with AsyncAdmin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topics([NewTopic("orders", 3)])
        print(await admin.describe_topics(["orders"]))

Each noun has a module with its questions and its answers; `admin_base` has what they share.
"""

from __future__ import annotations

from mainstem.client.admin_cluster import ClusterAdmin
from mainstem.client.admin_configs import ConfigAdmin
from mainstem.client.admin_groups import GroupAdmin
from mainstem.client.admin_records import RecordAdmin
from mainstem.client.admin_topics import TopicAdmin
from mainstem.client.admin_transactions import TransactionAdmin


class AsyncAdmin(TopicAdmin, ConfigAdmin, GroupAdmin, RecordAdmin, TransactionAdmin, ClusterAdmin):
    """Options are keyword arguments, by Kafka's names in Python's spelling: see `AdminOptions`."""
