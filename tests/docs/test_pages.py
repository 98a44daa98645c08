"""What our pages show is run, top to bottom."""

import time

from mainstem.testing import Cluster
from tests.support.client_load import Writer
from tests.support.doc_examples import run_page


def test_the_page_about_testing() -> None:
    run_page("testing.md")


def test_the_page_about_the_consumer() -> None:
    with Cluster(topics={"orders": 1, "events": 1}) as cluster:
        writer = Writer(cluster.bootstrap)
        now = int(time.time() * 1000)
        writer.send("orders", 0, [b"first", b"second", b"last"], timestamp=now)
        writer.send("events", 0, [b'{"amount": 5}'], timestamp=now)
        left = run_page("client/consumer.md", bootstrap=cluster.bootstrap)
    assert left["table"].column("value").to_pylist() == [b"first", b"second", b"last"]
    assert left["recent"]["value"].tolist() == [b"first", b"second", b"last"]
    assert left["total"] == len(b"first" + b"second" + b"last")
