"""`mainstem completion`: scripts that complete commands, verbs, options and names of topics in bash, zsh and fish.

The scripts ask `mainstem completion words …` what may come next. Commands and options are read from the parsers
themselves, so nothing is listed twice; topics and groups are asked of the cluster, for half a second at most, and where
nobody answers there is simply nothing to offer.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable
from typing import Any, Final

from mainstem.cli.failures import DONE, UserError

_SCRIPTS: Final = {
    "bash": """\
_mainstem() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(mainstem completion words "$COMP_CWORD" "${COMP_WORDS[@]:1}" 2>/dev/null)" \\
        -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _mainstem mainstem
""",
    "zsh": """\
#compdef mainstem
_mainstem() {
    local -a found
    found=(${(f)"$(mainstem completion words $((CURRENT - 1)) "${words[@]:1}" 2>/dev/null)"})
    (( ${#found} )) && compadd -- $found || _files
}
compdef _mainstem mainstem
""",
    "fish": """\
function __mainstem_words
    set -l before (commandline -opc)
    set -l now (commandline -ct)
    mainstem completion words (count $before) $before[2..-1] "$now" 2>/dev/null
end
complete -c mainstem -a '(__mainstem_words)'
""",
}
_TOPIC_OPTIONS: Final = frozenset({"--topic", "-t"})
_ASK_MS: Final = 500


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    parser.epilog = 'example: mainstem completion bash >> ~/.bashrc; or: eval "$(mainstem completion zsh)"'
    parser.add_argument("shell", choices=[*_SCRIPTS, "words"], help="which shell; `words` is what its script calls")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=completion)


def completion(given: argparse.Namespace) -> int:
    if given.shell != "words":
        print(_SCRIPTS[given.shell], end="")
        return DONE
    number, *words = given.rest or ["0"]
    if not number.isdecimal():
        raise UserError(f"{number!r} is not the number of the word that is being typed")
    at = int(number)
    before = words[: max(0, at - 1)]
    current = words[at - 1] if 0 < at <= len(words) else ""
    for word in candidates(before, current):
        print(word)
    return DONE


def candidates(before: list[str], current: str) -> list[str]:
    """What may stand where `current` is being typed, after the words `before`."""
    from mainstem.cli.main import COMMANDS, build, declare

    if not before:
        return _like(current, [*COMMANDS, "--help", "--version"])
    if before[0] not in COMMANDS:
        return []
    _, commands = build()
    parser: argparse.ArgumentParser = commands[before[0]]
    declare(parser, before[0])
    rest = before[1:]
    verbs = _verbs(parser)
    if verbs:
        if not rest:
            return _like(current, [*verbs, "--help"])
        if rest[0] not in verbs:
            return []
        parser, rest = verbs[rest[0]], rest[1:]
    return _like(current, _of(parser, before, rest, current))


def _of(parser: argparse.ArgumentParser, before: list[str], rest: list[str], current: str) -> Iterable[str]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    last = options.get(rest[-1]) if rest else None
    if last is not None and last.nargs != 0:
        return _values_of(last, before)
    if current.startswith("-"):
        return [name for name in options if name.startswith("--")]
    positions = [action for action in parser._actions if not action.option_strings and action.nargs != 0]
    given = len([word for at, word in enumerate(rest) if not word.startswith("-") and not _is_value(options, rest, at)])
    for action in positions:
        if action.nargs in ("+", "*") or given == 0:
            return _values_of(action, before)
        given -= 1
    return []


def _is_value(options: dict[str, argparse.Action], rest: list[str], at: int) -> bool:
    owner = options.get(rest[at - 1]) if at else None
    return owner is not None and owner.nargs != 0


def _values_of(action: argparse.Action, before: list[str]) -> Iterable[str]:
    if action.choices is not None:
        return [str(each) for each in action.choices]
    if action.dest == "topic" or set(action.option_strings) & _TOPIC_OPTIONS:
        return [] if before[:2] == ["topics", "create"] else _ask(before, "topics")
    if action.dest == "group":
        return _ask(before, "groups")
    return []


def _ask(before: list[str], what: str) -> list[str]:
    """Names from the cluster; none where it does not answer at once."""
    from mainstem.cli.arguments import add_cluster

    parser = argparse.ArgumentParser(add_help=False)
    add_cluster(parser)
    given, _ = parser.parse_known_args(before)
    import uvloop

    async def names() -> list[str]:
        from mainstem.client.admin import AsyncAdmin

        options: dict[str, Any] = {"bootstrap_servers": given.bootstrap, "default_api_timeout_ms": _ASK_MS}
        async with AsyncAdmin(**options, socket_connection_setup_timeout_ms=_ASK_MS) as admin:
            await admin.connect()
            if what == "topics":
                return await admin.list_topics()
            return [each.group_id for each in await admin.list_groups()]

    with contextlib.suppress(Exception):
        return uvloop.run(names())
    return []


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _like(current: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(current)]
