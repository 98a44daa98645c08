"""What the pages about producing and administering show is run, top to bottom, against a broker of our own."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.doc_examples import blocks, run_page
from tests.support.kafka import Kafka, KafkaNode, missing
from tests.support.node import Node
from tests.support.reading import read_values


class Group(NamedTuple):
    group_id: str = "billing"
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def test_the_page_about_the_admin(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        run_page("client/admin.md", bootstrap=node.bootstrap)


def test_the_page_about_producing(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        run_page("client/producer.md", bootstrap=node.bootstrap, transactional=node.bootstrap, group=Group())


def test_the_page_about_producing_without_its_transactions(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        namespace = {"bootstrap": node.bootstrap, "__name__": "example"}
        for line, source in blocks("client/producer.md"):
            if "transactional" not in source:
                exec(compile("\n" * (line - 1) + source, "docs/client/producer.md", "exec"), namespace)
        values = read_values(node.bootstrap, "orders")
        assert values[0] == b"value"
        assert len(values) == 1 + 1000 + 101 + 2
        assert read_values(node.bootstrap, "events") == [b'{"amount":5}']


@pytest.mark.campaign
@pytest.mark.kafka
def test_the_page_about_producing_with_transactions_on_kafka(tmp_path: Path) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    kafka = Kafka()
    kafka.fetch()
    with KafkaNode(kafka, tmp_path) as node:
        run_page("client/producer.md", bootstrap=node.bootstrap, transactional=node.bootstrap, group=Group())
