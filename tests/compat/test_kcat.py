"""kcat, the command line client of librdkafka, works against our broker. Quick, so it runs with every `make test`."""

import json
import shutil
import subprocess
import time

import pytest

from tests.compat.scenarios import new_name
from tests.support.node import Node

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")

_TIMEOUT_S = 30.0


def kcat(node: Node, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", node.bootstrap, "-q", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, f"{command} failed: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_it_produces_it_consumes(node: Node, codec: str) -> None:
    topic = new_name(f"kcat-{codec}")
    given = "".join(f"key {number}:value {number}\n" for number in range(200))
    kcat(node, "-P", "-t", topic, "-K:", "-z", codec, "-H", "made=here", stdin=given)
    said = kcat(node, "-C", "-t", topic, "-o", "beginning", "-e", "-f", "%k:%s|%h|%o\n")
    assert said.splitlines() == [f"key {number}:value {number}|made=here|{number}" for number in range(200)]


def test_it_reads_from_an_offset_and_from_a_time(node: Node) -> None:
    topic = new_name("kcat-offsets")
    kcat(node, "-P", "-t", topic, stdin="a\nb\n")
    # Timestamps are milliseconds: the next batch must have a later one.
    time.sleep(0.01)
    later = int(time.time() * 1000)
    kcat(node, "-P", "-t", topic, stdin="c\n")
    assert kcat(node, "-C", "-t", topic, "-o", "1", "-e").split() == ["b", "c"]
    assert kcat(node, "-C", "-t", topic, "-o", "-1", "-e").split() == ["c"]
    assert kcat(node, "-C", "-t", topic, "-o", f"s@{later}", "-e").split() == ["c"]
    assert kcat(node, "-Q", "-t", f"{topic}:0:{later}").split() == [topic, "[0]", "offset", "2"]


def test_it_lists_brokers_and_topics(node: Node) -> None:
    topic = new_name("kcat-list")
    kcat(node, "-P", "-t", topic, stdin="a\n")
    listed = json.loads(kcat(node, "-L", "-J", "-t", topic))
    assert [broker["name"] for broker in listed["brokers"]] == [node.bootstrap]
    (found,) = listed["topics"]
    assert found["topic"] == topic
    assert found["partitions"][0]["leader"] == listed["controllerid"] == listed["brokers"][0]["id"]


def test_it_consumes_as_a_group_and_goes_on_where_it_was(node: Node) -> None:
    topic, group = new_name("kcat-group"), new_name("group")
    consume = ("-G", group, "-e", "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", topic)
    kcat(node, "-P", "-t", topic, stdin="a\nb\n")
    assert kcat(node, *consume).split() == ["a", "b"]
    kcat(node, "-P", "-t", topic, stdin="c\n")
    assert kcat(node, *consume).split() == ["c"]
