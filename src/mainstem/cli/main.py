"""`mainstem …`: parses the words and hands over. What a command needs is imported when it runs, so help is instant."""

import argparse
import platform
import sys
from collections.abc import Sequence

from mainstem._version import VERSION

_DESCRIPTION = "A streaming log that speaks Kafka's protocol."


def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    if given.version:
        return _print_version()
    if given.command is None:
        _parser().print_help()
        return 2
    import mainstem.cli.node as node

    return {"up": node.up, "broker": node.broker, "format": node.format}[given.command](given)


def _print_version() -> int:
    from mainstem.build_info import build_name

    print(f"mainstem {VERSION} ({build_name()}, {platform.python_implementation()} {platform.python_version()})")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mainstem", description=_DESCRIPTION)
    parser.add_argument("--version", action="store_true", help="say which version and which build this is")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    up = commands.add_parser("up", help="run one broker here, now", description="Run one broker in the foreground.")
    up.add_argument("--port", type=int, default=9092, help="where clients connect (default 9092; 0 takes a free one)")
    up.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1: this machine)")
    up.add_argument("--data-dir", default="mainstem-data", help="where the data is (default ./mainstem-data)")
    up.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting by Kafka's name")

    node = commands.add_parser("broker", help="run one node of a planned cluster from a file of settings")
    node.add_argument("--config", required=True, metavar="FILE", help="Kafka's server.properties")

    prepare = commands.add_parser("format", help="prepare the directories of a node")
    prepare.add_argument("--config", required=True, metavar="FILE", help="Kafka's server.properties")
    prepare.add_argument("--cluster-id", help="the cluster to belong to (default: a new one)")
    prepare.add_argument("--ignore-formatted", action="store_true", help="leave directories alone that are formatted")
    return parser


if __name__ == "__main__":
    sys.exit(main())
