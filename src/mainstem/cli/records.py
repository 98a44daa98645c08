"""`mainstem records`: deletes from the front of partitions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mainstem.cli.arguments import Verbs, add_agreement
from mainstem.cli.failures import DONE, NOT_FOUND, UserError
from mainstem.cli.output import Output, name, number
from mainstem.cli.values import not_negative, partitions, point_in_time, several

if TYPE_CHECKING:
    from mainstem.client.admin import AsyncAdmin
    from mainstem.client.types import TopicPartition

_COLUMNS = [name("topic"), number("partition"), number("first_offset"), number("new_first_offset"), number("deleted")]


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    remove = Verbs(parser).add(
        "delete",
        "delete the oldest records of a topic, for good",
        delete,
        example="mainstem records delete orders --before-time 7d",
    )
    remove.add_argument("topic", help="its name")
    remove.add_argument("--partition", type=partitions, metavar="0,3", help="only these partitions (default: all)")
    limit = remove.add_mutually_exclusive_group(required=True)
    limit.add_argument("--before", type=not_negative, metavar="OFFSET", help="records below this offset")
    limit.add_argument("--before-time", type=point_in_time, metavar="TIME", help="records before then: 7d, ISO 8601")
    limit.add_argument("--all", action="store_true", help="every record that is there now")
    remove.add_argument("--dry-run", action="store_true", help="only show what would go")
    add_agreement(remove)


def delete(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        chosen = await _chosen(admin, given)
        first, last = await admin.beginning_offsets(chosen), await admin.end_offsets(chosen)
        if given.all:
            limits = last
        elif given.before is not None:
            limits = {tp: min(given.before, last[tp]) for tp in chosen}
        else:
            found = await admin.list_offsets(dict.fromkeys(chosen, given.before_time))
            limits = {tp: each.offset if each.offset >= 0 else last[tp] for tp, each in found.items()}
        limits = {tp: max(offset, first[tp]) for tp, offset in limits.items()}
        doomed = sum(limits[tp] - first[tp] for tp in chosen)
        if not given.dry_run:
            out.confirm(f"delete {several(doomed, 'offset')} of {given.topic}, for good?", is_agreed=given.yes)
            limits = await admin.delete_records(limits)
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "first_offset": first[tp],
                "new_first_offset": limits[tp],
                "deleted": limits[tp] - first[tp],
            }
            for tp in chosen
        ]
        out.table(_COLUMNS, rows)
        if given.dry_run:
            out.note("nothing was changed: --dry-run")
        return DONE

    return with_admin(given, story)


async def _chosen(admin: AsyncAdmin, given: argparse.Namespace) -> list[TopicPartition]:
    from mainstem.client.types import TopicPartition

    topic = (await admin.describe_topics([given.topic]))[given.topic]
    there = [each.partition for each in topic.partitions]
    missing = sorted(set(given.partition or ()) - set(there))
    if missing:
        raise UserError(f"topic {given.topic} has no partition {missing[0]}", NOT_FOUND)
    return [TopicPartition(given.topic, at) for at in there if given.partition is None or at in given.partition]
