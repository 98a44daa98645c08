"""`mainstem transactions`: list, describe, abort."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from mainstem.cli.arguments import Verbs, add_agreement
from mainstem.cli.failures import DONE, NOT_FOUND, UserError
from mainstem.cli.output import Column, Output, name, number
from mainstem.cli.values import duration_in_words, duration_ms, not_negative, several, time_in_words

if TYPE_CHECKING:
    from mainstem.client.admin import AsyncAdmin
    from mainstem.client.admin_types import TransactionDescription


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    verbs = Verbs(parser)

    show = verbs.add("list", "list transactional ids", list_)
    show.add_argument("--state", action="append", default=[], help="only those in this state: Ongoing …; repeatable")
    show.add_argument("--longer-than", type=duration_ms, default=-1, metavar="TIME", help="only those open for longer")
    show.add_argument("--pattern", metavar="REGEX", help="only ids that match this (Kafka 4.1 and later)")

    one = verbs.add("describe", "show what transactional ids have open", describe)
    one.add_argument("id", nargs="+", help="a transactional id")

    stop = verbs.add(
        "abort",
        "abort what a transactional id has open, or what hangs in a partition",
        abort,
        example="mainstem transactions abort --topic orders --partition 0 --start-offset 4711",
    )
    stop.add_argument("id", nargs="?", help="a transactional id: it is taken over, its producer is fenced")
    hanging = stop.add_argument_group("a transaction that its coordinator has lost")
    hanging.add_argument("--topic")
    hanging.add_argument("--partition", type=not_negative)
    hanging.add_argument("--start-offset", type=not_negative, help="where it began in that partition")
    add_agreement(stop)


def list_(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        found = await admin.list_transactions(
            states=given.state, longer_than_ms=given.longer_than, pattern=given.pattern
        )
        rows = [
            {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "producer_id": each.producer_id,
            }
            for each in found
        ]
        columns = [name("transactional_id"), Column("state"), number("producer_id")]
        out.table(columns, rows, "there are no transactions")
        return DONE

    return with_admin(given, story)


def describe(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        found = await admin.describe_transactions(given.id)
        documents = [_document(each) for each in found.values()]
        if out.is_json:
            out.document(documents)
            return DONE
        now_ms = time.time_ns() // 1_000_000
        for document in documents:
            started_ms = document["start_time_ms"]
            age = f"{duration_in_words(now_ms - started_ms)} ago" if started_ms >= 0 else "-"
            pairs = [(key, document[key]) for key in ("state", "producer_id", "producer_epoch", "coordinator")]
            pairs += [("timeout", duration_in_words(document["timeout_ms"]))]
            pairs += [("started", f"{time_in_words(started_ms)} ({age})" if started_ms >= 0 else None)]
            out.fields([*pairs, ("partitions", document["partitions"])], document["transactional_id"])
        return DONE

    return with_admin(given, story)


def abort(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    place = [given.topic, given.partition, given.start_offset]
    if (given.id is None) == all(each is None for each in place):
        raise UserError("give either a transactional id, or --topic, --partition and --start-offset")
    if given.id is None and any(each is None for each in place):
        raise UserError("a transaction that hangs is named by all of --topic, --partition and --start-offset")
    return with_admin(given, _abort_id(given) if given.id is not None else _abort_hanging(given))


def _abort_id(given: argparse.Namespace) -> Any:
    async def story(admin: AsyncAdmin, out: Output) -> int:
        before = (await admin.describe_transactions([given.id]))[given.id]
        out.confirm(f"abort what {given.id} has open and fence its producer?", is_agreed=given.yes)
        await admin.fence_producers([given.id])
        count = len(before.partitions)
        out.done(
            f"aborted {given.id}: {several(count, 'partition')}"
            if count
            else f"{given.id} had nothing open; its producer is fenced",
            transactional_id=given.id,
            state_before=before.state,
            partitions=[f"{tp.topic}:{tp.partition}" for tp in before.partitions],
        )
        return DONE

    return story


def _abort_hanging(given: argparse.Namespace) -> Any:
    from mainstem.client.types import TopicPartition

    async def story(admin: AsyncAdmin, out: Output) -> int:
        tp = TopicPartition(given.topic, given.partition)
        producers = (await admin.describe_producers([tp]))[tp]
        found = [each for each in producers if each.transaction_start_offset == given.start_offset]
        if not found:
            begun = sorted(each.transaction_start_offset for each in producers if each.transaction_start_offset >= 0)
            hint = f"; open ones begin at {', '.join(map(str, begun))}" if begun else "; none is open there"
            raise UserError(
                f"no transaction begins at {tp.topic}:{tp.partition} offset {given.start_offset}{hint}", NOT_FOUND
            )
        (one,) = found
        out.confirm(
            f"abort the transaction of producer {one.producer_id} in {tp.topic}:{tp.partition}?", is_agreed=given.yes
        )
        await admin.abort_transaction(tp, given.start_offset)
        out.done(
            f"aborted the transaction of producer {one.producer_id} in {tp.topic}:{tp.partition}",
            topic=tp.topic,
            partition=tp.partition,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
        )
        return DONE

    return story


def _document(found: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator": found.coordinator,
        "timeout_ms": found.timeout_ms,
        "start_time_ms": found.start_time_ms,
        "partitions": [f"{tp.topic}:{tp.partition}" for tp in found.partitions],
    }
