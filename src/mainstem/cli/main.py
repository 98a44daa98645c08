"""`mainstem …`: finds the command, has its module declare the options, parses, runs, and ends with a code that means
something.

What a command needs is imported when that command is given: the table below is all that `mainstem --help` reads, and
only the module that is named is loaded for `mainstem topics --help`. A module has `declare(parser)`, which adds options
and sets `run`, a function from the parsed words to an exit code.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn

from mainstem._version import VERSION
from mainstem.cli.failures import DONE, INTERRUPTED, USAGE, UserError, describe, wants_traceback

_DESCRIPTION: Final = "A streaming log that speaks Kafka's protocol: run a broker, and work with any Kafka cluster."
_EPILOG: Final = """\
`mainstem COMMAND --help` says more. The cluster is given with --bootstrap or MAINSTEM_BOOTSTRAP (default
127.0.0.1:9092). Exit codes: 0 done, 1 refused, 2 usage, 3 no broker answers, 4 not found, 130 interrupted."""

COMMANDS: Final = {
    "up": ("node", "run one broker here, now"),
    "broker": ("node", "run one node of a planned cluster from a file of settings"),
    "format": ("node", "prepare the directories of a node"),
    "topics": ("topics", "create, list, describe, alter and delete topics"),
    "produce": ("produce", "write records from lines of a file or of stdin"),
    "consume": ("consume", "read records to the terminal, to JSON lines, or to Parquet"),
    "groups": ("groups", "list, describe, reset and delete consumer groups"),
    "configs": ("configs", "show and change configs of topics, brokers and groups"),
    "records": ("records", "delete records from the front of partitions"),
    "transactions": ("transactions", "list, describe and abort transactions"),
    "dump": ("dump", "show what is in a segment, an index, a snapshot or a checkpoint"),
    "pipeline": ("pipeline", "land, transform and audit topics on Spark"),
    "perf": ("perf", "measure how fast a cluster takes and gives records"),
    "doctor": ("doctor", "check this machine, a config and a running broker"),
    "completion": ("completion", "print a script that completes these commands in a shell"),
}
"""Command → the module that has it, and what it does in a line."""


class Parser(argparse.ArgumentParser):
    """A mistake is one sentence and a way on, not a page of usage."""

    def error(self, message: str) -> NoReturn:
        found = re.fullmatch(r"argument (?:COMMAND|VERB): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if found is not None:
            message = _no_such_word(found[1], re.findall(r"[a-z]+", found[2]))
        raise UserError(f"{message}\n`{self.prog} --help` shows how it is used")


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    try:
        return _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough of it. Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if wants_traceback():
            raise
        # To the commands that move records --json says how a record is written, not what they say about it.
        return _tell(error, is_json="--json" in words and not {"produce", "consume"} & set(words[:1]))


def _open_what_is_closed() -> None:
    """Whoever starts us without a stdin, stdout or stderr (`>&-`, some daemons) gets one that leads nowhere.

    Else the next file or socket that is opened would take its number, and its part.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _run(words: list[str]) -> int:
    parser, commands = build()
    words = _command_first(words)
    if words and words[0] in COMMANDS:
        declare(commands[words[0]], words[0])
    given = parser.parse_args(words)
    if given.version:
        return _print_version()
    if given.command is None:
        parser.print_help()
        return USAGE
    if getattr(given, "run", None) is None:
        commands[given.command].print_help()
        return USAGE
    code = given.run(given)
    assert isinstance(code, int)
    sys.stdout.flush()
    return code


def build() -> tuple[Parser, dict[str, Parser]]:
    """The parser with every command by name, none of which has its options yet."""
    parser = Parser(
        prog="mainstem",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="say which version and which build this is")
    found = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    commands = {
        name: found.add_parser(name, help=line, description=_sentence(line)) for name, (_, line) in COMMANDS.items()
    }
    return parser, commands


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    """Has the module of a command add its options."""
    import_module(f"mainstem.cli.{COMMANDS[command][0]}").declare(parser, command)


def _command_first(words: list[str]) -> list[str]:
    """Options of all commands may stand before the command, too: `mainstem --json topics list`."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-b", "--bootstrap", "--timeout") else 1
    if at == 0 or at >= len(words) or words[at] not in COMMANDS:
        return words
    return [*words[at:], *words[:at]]


def _no_such_word(word: str, known: list[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(word, known, 1, 0.5)
    return f"there is no command {word!r}" + (
        f"; did you mean {nearest[0]!r}?" if nearest else f"; there are {', '.join(known)}"
    )


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _print_version() -> int:
    from mainstem.build_info import build_name

    print(f"mainstem {VERSION} ({build_name()}, {platform.python_implementation()} {platform.python_version()})")
    return DONE


def _tell(error: Exception, *, is_json: bool) -> int:
    """One sentence on stderr, or one JSON object; the exit code."""
    code, text, more = describe(error)
    sys.stdout.flush()
    if is_json:
        import json

        print(json.dumps({"message": text, "exit_code": code, **more}), file=sys.stderr)
        return code
    is_red = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    for line in text.splitlines():
        print(f"\033[31mmainstem:\033[0m {line}" if is_red else f"mainstem: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
