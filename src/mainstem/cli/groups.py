"""`mainstem groups`: list, describe, reset, delete."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from mainstem.cli.arguments import Verbs, add_agreement
from mainstem.cli.failures import DONE, NOT_FOUND, REFUSED, UserError
from mainstem.cli.output import Column, Output, name, number, prose
from mainstem.cli.values import not_negative, partitions, point_in_time, several

if TYPE_CHECKING:
    from mainstem.client.admin import AsyncAdmin
    from mainstem.client.admin_types import GroupDescription
    from mainstem.client.types import OffsetAndMetadata, TopicPartition


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    verbs = Verbs(parser)

    show = verbs.add("list", "list groups", list_)
    show.add_argument(
        "--state", action="append", default=[], help="only those in this state: Stable, Empty …; repeatable"
    )

    one = verbs.add("describe", "show members, offsets and lag of groups", describe)
    one.add_argument("group", nargs="+", help="its id")
    one.add_argument("--members", action="store_true", help="one line a member, with what it was given")

    reset_ = verbs.add(
        "reset",
        "set the offsets from which a group goes on reading",
        reset,
        example="mainstem groups reset billing --topic orders --to-time 2h",
    )
    reset_.add_argument("group", help="its id; it must have no members at the time")
    reset_.add_argument("-t", "--topic", action="append", default=[], help="of this topic; repeatable")
    reset_.add_argument("--all-topics", action="store_true", help="of every topic that it has offsets for")
    reset_.add_argument("--partition", type=partitions, metavar="0,3", help="only these partitions")
    where = reset_.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record that is there")
    where.add_argument("--to-latest", action="store_true", help="after the last record")
    where.add_argument("--to-offset", type=not_negative, metavar="N", help="this offset")
    where.add_argument(
        "--to-time", type=point_in_time, metavar="TIME", help="the first record from then on: 2h, ISO 8601"
    )
    where.add_argument("--shift-by", type=int, metavar="N", help="so many offsets on, or back where negative")
    reset_.add_argument("--dry-run", action="store_true", help="only show what would be set")
    add_agreement(reset_)

    remove = verbs.add("delete", "delete groups with what they committed", delete)
    remove.add_argument("group", nargs="+", help="its id")
    add_agreement(remove)


def list_(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        found = await admin.list_groups(states=given.state)
        rows = [
            {"group": each.group_id, "state": each.state, "kind": each.type.lower(), "protocol": each.protocol_type}
            for each in found
        ]
        out.table([name("group"), Column("state"), Column("kind"), Column("protocol")], rows, "there are no groups")
        return DONE

    return with_admin(given, story)


def describe(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        groups = (await admin.describe_groups(given.group)).values()
        documents = [await _whole(admin, group) for group in groups]
        if out.is_json:
            out.document(documents)
            return DONE
        for at, document in enumerate(documents):
            if at:
                out.line()
            _print_whole(out, document, with_members=given.members)
        return DONE

    return with_admin(given, story)


def reset(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    if bool(given.topic) == given.all_topics:
        raise UserError("say which topics: --topic NAME, or --all-topics")

    async def story(admin: AsyncAdmin, out: Output) -> int:
        await _require_no_members(admin, given.group)
        committed = await _committed(admin, given.group)
        chosen = await _chosen(admin, given, committed)
        target = await _targets(admin, given, chosen, committed)
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": committed[tp].offset if tp in committed else None,
                "new_offset": offset,
            }
            for tp, offset in sorted(target.items())
        ]
        is_asked = out.is_terminal and not (given.yes or given.dry_run or out.is_json)
        if is_asked:
            out.draw(_RESET_COLUMNS, rows)
        if not given.dry_run:
            out.confirm(f"set {several(len(rows), 'offset')} of group {given.group}?", is_agreed=given.yes)
            await admin.alter_group_offsets(given.group, target)
        if not is_asked:
            out.table(_RESET_COLUMNS, rows)
        out.note(
            "nothing was changed: --dry-run"
            if given.dry_run
            else f"set {several(len(rows), 'offset')} of group {given.group}"
        )
        return DONE

    return with_admin(given, story)


_RESET_COLUMNS = [name("topic"), number("partition"), number("offset"), number("new_offset")]


def delete(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        await admin.describe_groups(given.group)
        out.confirm(f"delete {', '.join(given.group)} with what was committed?", is_agreed=given.yes)
        await admin.delete_groups(given.group)
        if out.is_json:
            out.document([{"group": each, "result": "deleted"} for each in given.group])
        for each in [] if out.is_json else given.group:
            out.line(f"deleted {each}")
        return DONE

    return with_admin(given, story)


async def _whole(admin: AsyncAdmin, group: GroupDescription) -> dict[str, Any]:
    committed = await admin.list_group_offsets(group.group_id)
    owners = {tp: member for member in group.members for tp in member.partitions}
    found = sorted({*committed, *owners})
    ends = await _known_ends(admin, found)
    rows = []
    for tp in found:
        offset = committed[tp].offset if tp in committed else None
        end = ends.get(tp)
        owner = owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": owner.member_id if owner else None,
                "client": owner.client_id if owner else None,
                "host": owner.host if owner else None,
            }
        )
    members = [
        {
            "member": each.member_id,
            "instance": each.group_instance_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": [f"{tp.topic}:{tp.partition}" for tp in sorted(each.partitions)],
        }
        for each in group.members
    ]
    return {
        "group": group.group_id,
        "state": group.state,
        "kind": group.type.lower(),
        "assignor": group.assignor,
        "coordinator": group.coordinator.node_id,
        "lag": sum(each["lag"] or 0 for each in rows),
        "offsets": rows,
        "members": members,
    }


def _print_whole(out: Output, document: dict[str, Any], *, with_members: bool) -> None:
    pairs = [(key, document[key]) for key in ("state", "kind", "assignor", "coordinator")]
    out.fields([*pairs, ("members", len(document["members"])), ("lag", f"{document['lag']:,}")], document["group"])
    if with_members:
        out.draw(
            [name("member"), Column("instance"), Column("client"), Column("host"), prose("partitions")],
            document["members"],
        )
    elif document["offsets"]:
        columns = [
            name("topic"),
            number("partition"),
            number("offset"),
            number("end_offset"),
            number("lag", style="bold"),
        ]
        out.draw([*columns, Column("client"), Column("host"), Column("member")], document["offsets"])


async def _known_ends(admin: AsyncAdmin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Where partitions end; those that are no longer there are left out."""
    topics = await admin.describe_topics()
    there = [
        tp
        for tp in partitions
        if tp.topic in topics
        and any(each.partition == tp.partition and each.leader >= 0 for each in topics[tp.topic].partitions)
    ]
    return await admin.end_offsets(there)


async def _require_no_members(admin: AsyncAdmin, group_id: str) -> None:
    """A group that nobody has heard of may be given offsets; one that is at work may not."""
    from mainstem.client.errors import GroupIdNotFoundError

    try:
        group = (await admin.describe_groups([group_id]))[group_id]
    except GroupIdNotFoundError:
        return
    if group.members:
        raise UserError(
            f"group {group_id} has {several(len(group.members), 'member')}; stop its consumers first", REFUSED
        )


async def _committed(admin: AsyncAdmin, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    return await admin.list_group_offsets(group_id)


async def _chosen(
    admin: AsyncAdmin, given: argparse.Namespace, committed: dict[TopicPartition, OffsetAndMetadata]
) -> list[TopicPartition]:
    from mainstem.client.types import TopicPartition

    if given.all_topics:
        found = list(committed)
    else:
        topics = await admin.describe_topics(given.topic)
        found = [TopicPartition(each.name, one.partition) for each in topics.values() for one in each.partitions]
    if given.partition is not None:
        missing = set(given.partition) - {tp.partition for tp in found}
        if missing:
            raise UserError(f"there is no partition {min(missing)}", NOT_FOUND)
        found = [tp for tp in found if tp.partition in given.partition]
    if not found:
        raise UserError(f"group {given.group} has no offsets; name a topic with --topic", NOT_FOUND)
    return found


async def _targets(
    admin: AsyncAdmin,
    given: argparse.Namespace,
    chosen: list[TopicPartition],
    committed: dict[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, int]:
    """The new offset of each partition, never outside of what is there."""
    first, last = await admin.beginning_offsets(chosen), await admin.end_offsets(chosen)
    if given.to_earliest:
        return first
    if given.to_latest:
        return last
    if given.to_time is not None:
        found = await admin.list_offsets(dict.fromkeys(chosen, given.to_time))
        return {tp: each.offset if each.offset >= 0 else last[tp] for tp, each in found.items()}
    if given.to_offset is not None:
        wanted = dict.fromkeys(chosen, given.to_offset)
    else:
        without = [tp for tp in chosen if tp not in committed]
        if without:
            tp = without[0]
            raise UserError(f"group {given.group} has no offset for {tp.topic}:{tp.partition} to shift", NOT_FOUND)
        wanted = {tp: committed[tp].offset + given.shift_by for tp in chosen}
    return {tp: min(max(offset, first[tp]), last[tp]) for tp, offset in wanted.items()}
