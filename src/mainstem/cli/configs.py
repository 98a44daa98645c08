"""`mainstem configs`: show, set, unset, for topics, brokers, loggers and groups."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from mainstem.cli.arguments import Verbs
from mainstem.cli.failures import DONE, NOT_FOUND, UserError
from mainstem.cli.output import Column, Output, name, prose
from mainstem.cli.values import key_value

if TYPE_CHECKING:
    from mainstem.client.admin import AsyncAdmin
    from mainstem.client.admin_types import ConfigChange, ConfigEntry, ConfigResource

_KINDS: Final = {
    "topic": "TOPIC",
    "broker": "BROKER",
    "logger": "BROKER_LOGGER",
    "group": "GROUP",
    "client-metrics": "CLIENT_METRICS",
}


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    verbs = Verbs(parser)

    show_ = verbs.add("show", "show configs", show, example="mainstem configs show topic orders --all")
    _add_resource(show_)
    show_.add_argument("key", nargs="*", help="only these")
    show_.add_argument("-a", "--all", action="store_true", help="with those that have their defaults")
    show_.add_argument("--docs", action="store_true", help="with what each means")

    set_verb = verbs.add("set", "set configs", set_, example="mainstem configs set topic orders retention.ms=3600000")
    _add_resource(set_verb)
    set_verb.add_argument("pair", nargs="+", type=key_value, metavar="KEY=VALUE")
    set_verb.add_argument("--dry-run", action="store_true", help="check that it could be done")

    unset_ = verbs.add("unset", "give configs their defaults back", unset)
    _add_resource(unset_)
    unset_.add_argument("key", nargs="+")
    unset_.add_argument("--dry-run", action="store_true", help="check that it could be done")


def _add_resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=list(_KINDS), help="what has the configs")
    parser.add_argument("name", help="its name; a broker's id, or 'default' for all brokers")


def show(given: argparse.Namespace) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        resource = _resource(given)
        await _require(admin, given)
        found = (await admin.describe_configs([resource], names=given.key or None, documentation=given.docs))[resource]
        missing = [key for key in given.key if key not in found]
        if missing:
            raise UserError(f"{given.kind} {given.name} has no config {missing[0]}", NOT_FOUND)
        rows = [_row(entry) for _, entry in sorted(found.items()) if given.all or given.key or not entry.is_default]
        columns = [name("config"), prose("value", "bold"), Column("source", "dim"), Column("type", "dim")]
        columns += [Column("read_only", "dim")] if given.kind == "broker" else []
        columns += [prose("documentation")] if given.docs else []
        out.table(columns, rows, "every config has its default; --all shows them")
        return DONE

    return with_admin(given, story)


def set_(given: argparse.Namespace) -> int:
    from mainstem.client.admin_types import ConfigChange

    return _change(given, [ConfigChange(key, value) for key, value in given.pair])


def unset(given: argparse.Namespace) -> int:
    from mainstem.client.admin_types import ConfigChange, ConfigOperation

    return _change(given, [ConfigChange(key, None, ConfigOperation.DELETE) for key in given.key])


def _change(given: argparse.Namespace, changes: list[ConfigChange]) -> int:
    from mainstem.cli.session import with_admin

    async def story(admin: AsyncAdmin, out: Output) -> int:
        resource = _resource(given)
        await _require(admin, given)
        await admin.alter_configs({resource: changes}, validate_only=given.dry_run)
        word = "could be altered" if given.dry_run else "altered"
        keys = [each.name for each in changes]
        out.done(
            f"{word} {given.kind} {given.name}: {', '.join(keys)}",
            kind=given.kind,
            name=given.name,
            configs=keys,
            result="valid" if given.dry_run else "altered",
        )
        return DONE

    return with_admin(given, story)


def _resource(given: argparse.Namespace) -> ConfigResource:
    from mainstem.client.admin_types import ConfigResource, ResourceType

    is_of_all_brokers = given.kind == "broker" and given.name == "default"
    if given.kind in ("broker", "logger") and not is_of_all_brokers and not given.name.isdecimal():
        raise UserError(f"{given.name!r} is not the id of a broker; that is a number, or 'default' for all of them")
    return ConfigResource(ResourceType[_KINDS[given.kind]], "" if is_of_all_brokers else given.name)


async def _require(admin: AsyncAdmin, given: argparse.Namespace) -> None:
    """Says now that there is no such topic or broker, where asking for it would only wait for one to come."""
    if given.kind == "topic":
        await admin.describe_topics([given.name])
    elif given.kind in ("broker", "logger") and given.name != "default":
        there = [each.node_id for each in (await admin.describe_cluster()).brokers]
        if int(given.name) not in there:
            raise UserError(f"there is no broker {given.name}; there are {', '.join(map(str, there))}", NOT_FOUND)


def _row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "config": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "source": _source(entry.source),
        "type": entry.kind.lower(),
        "read_only": entry.is_read_only,
        "documentation": entry.documentation,
    }


def _source(number: int) -> str:
    """Where a value comes from, in words: `dynamic topic`, `static broker`, `default`."""
    from mainstem.client.admin_types import ConfigSource

    known = number if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN
    return ConfigSource(known).name.lower().replace("_", " ")
