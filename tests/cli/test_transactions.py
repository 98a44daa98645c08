"""`mainstem transactions`: what is open, and ending it by its id or where it hangs."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from mainstem.client.errors import KafkaError
from mainstem.client.sync_producer import Producer
from tests.cli.shell import Shell, plain


class Open:
    """A transaction that is open, with one record in partition 1 of a topic."""

    def __init__(self, shell: Shell, topic: str) -> None:
        self.id = f"billing-{uuid4().hex[:8]}"
        self.producer = Producer(bootstrap_servers=shell.bootstrap, transactional_id=self.id)
        self.producer.init_transactions()
        self.producer.begin_transaction()
        self.sent = self.producer.send(topic, b"unpaid", partition=1).result(30)


@pytest.fixture
def opened(shell: Shell, topic: str) -> Iterator[Open]:
    made = Open(shell, topic)
    yield made
    made.producer.close(timeout_ms=0)


def test_what_is_open_is_listed_and_described(shell: Shell, topic: str, opened: Open) -> None:
    rows = {row["transactional_id"]: row for row in json.loads(shell.check("transactions", "list", "--json").out)}
    assert rows[opened.id]["state"] == "Ongoing"
    assert opened.id in shell.check("transactions", "list", "--state", "Ongoing").out
    assert opened.id not in shell.check("transactions", "list", "--state", "CompleteCommit").out
    assert opened.id not in shell.check("transactions", "list", "--longer-than", "1h").out
    (whole,) = json.loads(shell.check("transactions", "describe", opened.id, "--json").out)
    assert (whole["state"], whole["partitions"]) == ("Ongoing", [f"{topic}:1"])
    shown = shell.terminal("transactions", "describe", opened.id)
    assert f"{topic}:1" in plain(shown.out)
    assert shell.run("transactions", "describe", "nobody").code == 4


def test_an_abort_by_id_frees_readers_and_fences_the_producer(shell: Shell, topic: str, opened: Open) -> None:
    shell.check("produce", topic, "-p", "1", stdin=b"paid\n")
    assert shell.check("consume", topic, "--from-beginning", "--read-committed").out == ""
    asked = shell.terminal("transactions", "abort", opened.id, keys=b"y\n", after=b"[y/N]")
    assert asked.code == 0
    assert f"aborted {opened.id}: 1 partition" in plain(asked.out)
    while shell.check("consume", topic, "--from-beginning", "--read-committed").out != "paid\n":
        pass  # the marker is written a moment after the answer
    with pytest.raises(KafkaError):
        opened.producer.commit_transaction()


def test_an_abort_of_what_hangs_names_the_place(shell: Shell, topic: str, opened: Open) -> None:
    place = ["--topic", topic, "--partition", "1"]
    wrong = shell.run("transactions", "abort", *place, "--start-offset", "77")
    assert wrong.code == 4
    assert f"open ones begin at {opened.sent.offset}" in wrong.err
    done = json.loads(
        shell.check("transactions", "abort", *place, "--start-offset", str(opened.sent.offset), "--json").out
    )
    assert (done["topic"], done["partition"]) == (topic, 1)
    shell.check("produce", topic, "-p", "1", stdin=b"paid\n")
    while shell.check("consume", topic, "--from-beginning", "--read-committed").out != "paid\n":
        pass
