"""`mainstem topics`, `configs` and `records`: what they do, what they print, and how they end."""

import json
import time
from uuid import uuid4

from tests.cli.shell import Shell


def test_a_topic_is_created_listed_described_altered_and_deleted(shell: Shell) -> None:
    name = f"books-{uuid4().hex[:8]}"
    made = shell.check("topics", "create", name, "-p", "3", "-c", "retention.ms=1000")
    assert made.out == f"created {name}: 3 partitions, 1 replica\n"
    (row,) = json.loads(shell.check("topics", "list", name, "--json").out)
    assert (row["topic"], row["partitions"], row["replicas"], row["under_replicated"]) == (name, 3, 1, 0)
    assert len(row["topic_id"]) == 22
    shell.check("topics", "alter", name, "-p", "4", "-c", "max.message.bytes=2000", "--delete-config", "retention.ms")
    while True:
        (whole,) = json.loads(shell.check("topics", "describe", name, "--json").out)
        if whole["partitions"] == 4 and "max.message.bytes" in whole["configs"]:
            break
    assert whole["configs"] == {"max.message.bytes": "2000"}
    assert [each["partition"] for each in whole["partition_list"]] == [0, 1, 2, 3]
    shell.check("topics", "delete", name)
    while name in shell.check("topics", "list").out:
        pass


def test_columns_are_aligned_in_a_pipe_and_have_no_colour(shell: Shell, topic: str) -> None:
    shown = shell.check("topics", "list", topic)
    assert "\x1b" not in shown.out
    header, row = shown.lines
    assert header.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "UNDER-REPLICATED", "TOPIC-ID"]
    assert row.split()[:4] == [topic, "2", "1", "0"]
    assert header.index("TOPIC-ID") == row.index(row.split()[4])


def test_of_several_topics_each_failure_is_told_and_the_rest_is_done(shell: Shell, topic: str) -> None:
    good = f"good-{uuid4().hex[:8]}"
    ended = shell.run("topics", "create", topic, "bad name", good)
    assert ended.code == 1
    assert f"created {good}" in ended.out
    assert f"topic {topic} exists already; --if-not-exists lets that pass" in ended.err
    assert "bad name" in ended.err
    again = shell.check("topics", "create", topic, "--if-not-exists", "--json")
    assert json.loads(again.out) == [{"topic": topic, "result": "exists"}]


def test_a_dry_run_changes_nothing(shell: Shell, topic: str) -> None:
    name = f"imagined-{uuid4().hex[:8]}"
    assert shell.check("topics", "create", name, "--dry-run").out.startswith(f"could be created {name}")
    assert shell.run("topics", "describe", name).code == 4
    assert shell.check("topics", "alter", topic, "-p", "9", "--dry-run").out == f"could be altered {topic}\n"
    assert json.loads(shell.check("topics", "describe", topic, "--json").out)[0]["partitions"] == 2


def test_what_is_not_there_is_told_in_one_line_with_its_own_exit_code(shell: Shell) -> None:
    for words in (["topics", "describe"], ["topics", "delete"], ["configs", "show", "topic"]):
        ended = shell.run(*words, "nowhere")
        assert (ended.code, ended.out, ended.err) == (4, "", "mainstem: there is no topic nowhere\n"), words
    assert shell.run("topics", "delete", "nowhere", "--if-exists").code == 0
    assert shell.run("topics", "alter", "nowhere", "-p", "3").code == 4


def test_with_json_a_failure_is_json_too(shell: Shell) -> None:
    ended = shell.run("topics", "describe", "nowhere", "--json")
    told = json.loads(ended.err)
    assert (told["exit_code"], told["error"], told["topic"]) == (4, "UNKNOWN_TOPIC_OR_PARTITION", "nowhere")
    assert ended.out == ""


def test_configs_are_shown_with_where_they_come_from_set_and_unset(shell: Shell, topic: str) -> None:
    shell.check("configs", "set", "topic", topic, "retention.ms=12345", "cleanup.policy=compact")
    while True:
        found = {row["config"]: row for row in json.loads(shell.check("configs", "show", "topic", topic, "--json").out)}
        if found.get("retention.ms", {}).get("value") == "12345":
            break
    assert found["retention.ms"]["source"] == "dynamic topic"
    assert found["retention.ms"]["type"] == "long"
    everything = json.loads(shell.check("configs", "show", "topic", topic, "--all", "--json").out)
    assert len(everything) > len(found)
    shell.check("configs", "unset", "topic", topic, "retention.ms")
    while (
        json.loads(shell.check("configs", "show", "topic", topic, "retention.ms", "--json").out)[0]["source"]
        != "default"
    ):
        pass
    assert shell.run("configs", "set", "topic", topic, "retention.ms=soon").code == 1
    assert shell.run("configs", "set", "topic", topic, "no-pair").code == 2
    assert "has no config nix" in shell.run("configs", "show", "topic", topic, "nix").err
    began = time.monotonic()
    for words in (("show", "broker", "77"), ("set", "broker", "77", "a=b"), ("show", "logger", "77")):
        ended = shell.run("configs", *words)
        assert (ended.code, ended.err) == (4, "mainstem: there is no broker 77; there are 1\n")
    assert time.monotonic() - began < 10
    broker = {
        row["config"]: row["value"] for row in json.loads(shell.check("configs", "show", "broker", "1", "--json").out)
    }
    assert broker["node.id"] == "1"
    assert "is not the id of a broker" in shell.run("configs", "show", "broker", "first").err


def test_records_are_deleted_from_the_front(shell: Shell, topic: str) -> None:
    shell.check("produce", topic, "-p", "0", stdin=b"1\n2\n3\n4\n")
    planned = json.loads(shell.check("records", "delete", topic, "--before", "3", "--dry-run", "--json").out)
    assert [(row["partition"], row["new_first_offset"], row["deleted"]) for row in planned] == [(0, 3, 3), (1, 0, 0)]
    done = json.loads(shell.check("records", "delete", topic, "--before", "3", "--partition", "0", "--json").out)
    assert [(row["first_offset"], row["new_first_offset"]) for row in done] == [(0, 3)]
    assert shell.check("consume", topic, "--from-beginning").out == "4\n"
    shell.check("records", "delete", topic, "--all")
    assert shell.check("consume", topic, "--from-beginning").out == ""
    assert shell.run("records", "delete", topic, "--all", "--partition", "7").code == 4
    assert shell.run("records", "delete", topic).code == 2
