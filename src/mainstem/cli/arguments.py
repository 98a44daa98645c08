"""Options that many commands have, declared once: the cluster, the shape of the output, and how long to wait."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Final

from mainstem.cli.values import duration_ms

Run = Callable[[argparse.Namespace], int]
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def add_cluster(parser: argparse.ArgumentParser, *, with_json: bool = True) -> None:
    """--bootstrap, --timeout, and how results are shown."""
    group = parser.add_argument_group("cluster and output")
    group.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("MAINSTEM_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        help=f"a broker of the cluster, or several with commas (default MAINSTEM_BOOTSTRAP or {DEFAULT_BOOTSTRAP})",
    )
    group.add_argument(
        "--timeout", type=duration_ms, default=30_000, metavar="TIME", help="how long to wait for it (default 30s)"
    )
    add_output(group, with_json=with_json)


def add_output(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, with_json: bool = True) -> None:
    if with_json:
        parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    parser.add_argument("--no-color", action="store_true", help="no colour, as with NO_COLOR=1")


class Verbs:
    """The verbs of a noun: `mainstem topics create`, `mainstem topics list` …"""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._found = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=type(parser))

    def add(
        self, verb: str, line: str, run: Run, *, example: str = "", is_local: bool = False
    ) -> argparse.ArgumentParser:
        """A verb with the options that all have. One that is local talks to no cluster."""
        parser = self._found.add_parser(
            verb,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            epilog=f"example: {example}" if example else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run)
        if is_local:
            add_output(parser)
        else:
            add_cluster(parser)
        return parser


def add_agreement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask first, where this is a terminal")
