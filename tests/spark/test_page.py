"""docs/spark.md is run: its Python top to bottom, then its commands, against both brokers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mainstem.cli.main import main
from tests.spark.brokers import Broker
from tests.support.doc_examples import DOCS, run_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

PAGE = "spark.md"
_COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
RECORDS = 200


def test_what_the_page_shows_works(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = [
        b'{"id": %d, "amount": %d.5%s}' % (nth, nth, b', "urgent": true' * (nth % 9 == 0)) for nth in range(RECORDS)
    ]
    for topic in ("orders", "urgent", "copy", "large", "doubled", "broken", "unreadable"):
        broker.make_topic(topic, 2)
    broker.produce("orders", [*values, b"broken"], keys=[b"%d" % (nth % 7) for nth in range(RECORDS + 1)], partition=0)
    monkeypatch.chdir(tmp_path)

    left = run_page(PAGE, bootstrap=broker.bootstrap, home=tmp_path / "home", log_dir=str(broker.log_dir("orders")))
    assert left["landed"] == RECORDS + 1
    assert left["pairs"].columns == ["key", "value"]
    assert len(broker.values("urgent")) == len(range(0, RECORDS, 9))
    assert broker.values("copy") == broker.values("orders")
    assert len(broker.values("doubled")) == RECORDS

    for block in _COMMANDS.findall((DOCS / PAGE).read_text()):
        for line in block.splitlines():
            command = shlex.split(line)
            assert command[:2] == ["mainstem", "pipeline"]
            capsys.readouterr()
            # The audit finds the record that is broken on purpose.
            expected = 1 if "--sequence" in command else 0
            assert main([*command[1:], "-b", broker.bootstrap]) == expected, line
    assert "mainstem-sink." in capsys.readouterr().out
    assert broker.values("broken") == broker.values("unreadable") == [b"broken"]
    assert len(broker.values("large")) == RECORDS - 50
    assert "<svg" in (tmp_path / "audit.html").read_text()
