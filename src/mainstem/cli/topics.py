"""`mainstem topics`: create, list, describe, alter, delete."""

from __future__ import annotations

import argparse
import fnmatch
from typing import TYPE_CHECKING, Any

from mainstem.cli.arguments import Verbs, add_agreement
from mainstem.cli.failures import DONE, NOT_FOUND, UserError, together
from mainstem.cli.output import Column, Output, name, number
from mainstem.cli.values import in_words, key_value, positive, several

if TYPE_CHECKING:
    from mainstem.client.admin import AsyncAdmin
    from mainstem.client.admin_types import CreatedTopic, TopicDescription
    from mainstem.client.types import TopicPartition


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    verbs = Verbs(parser)

    make = verbs.add(
        "create",
        "create topics",
        create,
        example="mainstem topics create orders --partitions 6 --config retention.ms=86400000",
    )
    make.add_argument("topic", nargs="+", help="its name")
    make.add_argument("-p", "--partitions", type=positive, default=-1, help="how many (default: the cluster's)")
    make.add_argument("-r", "--replication-factor", type=positive, default=-1, help="copies (default: the cluster's)")
    make.add_argument(
        "-c", "--config", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="a config, repeatable"
    )
    make.add_argument("--if-not-exists", action="store_true", help="one that is there already is fine")
    make.add_argument("--dry-run", action="store_true", help="check that it could be created")

    show = verbs.add("list", "list topics", list_, example="mainstem topics list 'orders-*'")
    show.add_argument("pattern", nargs="?", default="*", help="only names like this, as in a shell: 'orders-*'")
    show.add_argument("-i", "--internal", action="store_true", help="with those that the cluster keeps for itself")

    one = verbs.add("describe", "show partitions, offsets, sizes and configs of topics", describe)
    one.add_argument("topic", nargs="+", help="its name")

    change = verbs.add(
        "alter",
        "add partitions and change configs of a topic",
        alter,
        example="mainstem topics alter orders --partitions 12 --config retention.ms=3600000",
    )
    change.add_argument("topic", help="its name")
    change.add_argument("-p", "--partitions", type=positive, help="how many it shall have in all")
    change.add_argument(
        "-c", "--config", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="set a config"
    )
    change.add_argument(
        "--delete-config", action="append", default=[], metavar="KEY", help="give a config its default back"
    )
    change.add_argument("--dry-run", action="store_true", help="check that it could be done")

    remove = verbs.add("delete", "delete topics with everything in them", delete)
    remove.add_argument("topic", nargs="+", help="its name")
    remove.add_argument("--if-exists", action="store_true", help="one that is not there is fine")
    add_agreement(remove)


def create(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin
    from mainstem.client.admin_types import NewTopic
    from mainstem.client.errors import KafkaError, TopicExistsError

    async def story(admin: AsyncAdmin, out: Output) -> int:
        rows: list[dict[str, Any]] = []
        failures: list[KafkaError] = []
        for each in dict.fromkeys(given.topic):
            wanted = NewTopic(each, given.partitions, given.replication_factor, dict(given.config))
            try:
                made = (await admin.create_topics([wanted], validate_only=given.dry_run))[each]
            except TopicExistsError as error:
                if given.if_not_exists:
                    rows.append({"topic": each, "result": "exists"})
                else:
                    failures.append(error)
            except KafkaError as error:
                failures.append(error)
            else:
                rows.append(_made(made, "valid" if given.dry_run else "created"))
        _print_made(out, rows)
        if failures:
            raise together(failures)
        return DONE

    return with_admin(given, story)


def _made(topic: CreatedTopic, result: str) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "topic_id": _id(topic.topic_id),
        "result": result,
    }


def _print_made(out: Output, rows: list[dict[str, Any]]) -> None:
    if out.is_json:
        out.document(rows)
        return
    for row in rows:
        if row["result"] == "exists":
            out.note(f"{row['topic']} exists already")
        else:
            word = "could be created" if row["result"] == "valid" else "created"
            sizes = f"{several(row['partitions'], 'partition')}, {several(row['replication_factor'], 'replica')}"
            out.line(f"{word} {row['topic']}: {sizes}")


def list_(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        found = await admin.describe_topics()
        rows = [
            _summary(topic)
            for each, topic in found.items()
            if (given.internal or not topic.is_internal) and fnmatch.fnmatchcase(each, given.pattern)
        ]
        columns = [
            name("topic"),
            number("partitions"),
            number("replicas"),
            number("under_replicated"),
            Column("topic_id"),
        ]
        out.table(columns, rows, "there are no topics" if given.pattern == "*" else f"no topic is like {given.pattern}")
        return DONE

    return with_admin(given, story)


def describe(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        topics = list((await admin.describe_topics(given.topic)).values())
        documents = [await _whole(admin, topic) for topic in topics]
        if out.is_json:
            out.document(documents)
            return DONE
        for at, document in enumerate(documents):
            if at:
                out.line()
            _print_whole(out, document)
        return DONE

    return with_admin(given, story)


def alter(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin
    from mainstem.client.admin_types import ConfigChange, ConfigOperation, ConfigResource, ResourceType

    if not (given.partitions or given.config or given.delete_config):
        raise UserError("nothing to alter; give --partitions, --config or --delete-config")
    changes = [ConfigChange(key, value) for key, value in given.config]
    changes += [ConfigChange(key, None, ConfigOperation.DELETE) for key in given.delete_config]

    async def story(admin: AsyncAdmin, out: Output) -> int:
        await admin.describe_topics([given.topic])
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, given.topic)
            await admin.alter_configs({resource: changes}, validate_only=given.dry_run)
        if given.partitions:
            await admin.create_partitions({given.topic: given.partitions}, validate_only=given.dry_run)
        word = "could be altered" if given.dry_run else "altered"
        out.done(f"{word} {given.topic}", topic=given.topic, result="valid" if given.dry_run else "altered")
        return DONE

    return with_admin(given, story)


def delete(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        there = set(await admin.list_topics(internal=True))
        missing = [each for each in given.topic if each not in there]
        if missing and not given.if_exists:
            raise UserError("\n".join(f"there is no topic {each}" for each in missing), NOT_FOUND)
        doomed = [each for each in dict.fromkeys(given.topic) if each in there]
        if doomed:
            what = f"topic {doomed[0]}" if len(doomed) == 1 else f"{len(doomed)} topics ({', '.join(doomed)})"
            out.confirm(f"delete {what} with everything in it?", is_agreed=given.yes)
            await admin.delete_topics(doomed)
        if out.is_json:
            out.document([{"topic": each, "result": "deleted"} for each in doomed])
        for each in [] if out.is_json else doomed:
            out.line(f"deleted {each}")
        return DONE

    return with_admin(given, story)


def _id(topic_id: bytes) -> str | None:
    """As text; None from brokers that are too old to have ids."""
    from mainstem.protocol.uuids import uuid_to_text

    return uuid_to_text(topic_id) if any(topic_id) else None


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        "topic_id": _id(topic.topic_id),
        "internal": topic.is_internal,
    }


async def _whole(admin: AsyncAdmin, topic: TopicDescription) -> dict[str, Any]:
    """A topic with all that can be known of it. A partition without a leader has no offsets."""
    from mainstem.client.admin_types import ConfigResource, ConfigSource, ResourceType
    from mainstem.client.types import TopicPartition

    led = [TopicPartition(topic.name, each.partition) for each in topic.partitions if each.leader >= 0]
    first, last = await admin.beginning_offsets(led), await admin.end_offsets(led)
    sizes = await _sizes(admin, topic)
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    configs = (await admin.describe_configs([resource]))[resource]
    partitions = []
    for each in topic.partitions:
        tp = TopicPartition(topic.name, each.partition)
        has_offsets = tp in first
        partitions.append(
            {
                "partition": each.partition,
                "leader": each.leader if each.leader >= 0 else None,
                "epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "offline": each.offline,
                "first_offset": first[tp] if has_offsets else None,
                "end_offset": last[tp] if has_offsets else None,
                "offsets": last[tp] - first[tp] if has_offsets else None,
                "bytes": sizes.get(tp),
            }
        )
    own = {key: each.value for key, each in configs.items() if each.source == ConfigSource.DYNAMIC_TOPIC}
    return {**_summary(topic), "configs": own, "partition_list": partitions}


async def _sizes(admin: AsyncAdmin, topic: TopicDescription) -> dict[TopicPartition, int]:
    """The bytes of each partition on its leader's disk."""
    leaders = {each.leader for each in topic.partitions if each.leader >= 0}
    folders = await admin.describe_log_dirs(sorted(leaders))
    by_broker = {
        (broker, one.tp): one.size_bytes
        for broker, found in folders.items()
        for folder in found
        for one in folder.replicas
        if not one.is_future
    }
    return {
        tp: size
        for (broker, tp), size in by_broker.items()
        if tp.topic == topic.name
        and any(each.partition == tp.partition and each.leader == broker for each in topic.partitions)
    }


def _print_whole(out: Output, document: dict[str, Any]) -> None:
    partitions = document["partition_list"]
    sizes = [each["bytes"] for each in partitions if each["bytes"] is not None]
    known = [each["offsets"] for each in partitions if each["offsets"] is not None]
    pairs = [
        ("id", document["topic_id"]),
        ("partitions", document["partitions"]),
        ("replicas", document["replicas"]),
        ("offsets", f"{sum(known):,}"),
        ("size", in_words(sum(sizes))),
        ("configs", ", ".join(f"{key}={value}" for key, value in sorted(document["configs"].items()))),
    ]
    out.fields(pairs, document["topic"])
    rows = [{**each, "size": in_words(each["bytes"]) if each["bytes"] is not None else None} for each in partitions]
    columns = [
        number("partition"),
        number("leader"),
        number("epoch"),
        Column("replicas"),
        Column("isr"),
        Column("offline"),
    ]
    out.draw([*columns, number("first_offset"), number("end_offset"), number("offsets"), number("size")], rows)
