"""docs/cli.md shows what the commands print: it is run, and compared."""

import os
from pathlib import Path

from mainstem.client.admin_types import NewTopic
from mainstem.client.sync_admin import Admin
from mainstem.client.sync_producer import Producer
from tests.support.console_pages import Session, replay, steady
from tests.support.doc_examples import DOCS
from tests.support.node import Node


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    page = DOCS / "cli.md"
    text = page.read_text()
    with Node(tmp_path, {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}) as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topics([NewTopic("payments", 1)])
        # Somebody else's work, which the page looks at: a transaction that is open.
        with Producer(
            bootstrap_servers=node.bootstrap, transactional_id="billing-1", transaction_timeout_ms=600_000
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("payments", b"42 EUR").result(30)
            shown = replay(text, Session(tmp_path, node.bootstrap))
            producer.close(timeout_ms=0)
    if os.environ.get("MAINSTEM_WRITE_DOCS"):
        page.write_text(shown.replace(str(tmp_path), "/var/lib/mainstem"))
    else:
        assert steady(shown.replace(str(tmp_path), "/var/lib/mainstem")) == steady(text)
