"""What commands print, in three shapes: tables with colour on a terminal, plain columns in a pipe, JSON for scripts.

- Results go to stdout, everything about them (notes, progress, questions) to stderr, so that a pipe carries data only.
- With `--json` a command prints exactly one document. The keys are the same as the columns.
- Colour is for terminals; NO_COLOR, TERM=dumb and `--no-color` turn it off. `rich` is imported only where it draws.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

from mainstem.cli.failures import REFUSED, UserError

Row = Mapping[str, Any]

GOOD: Final = "green"
BAD: Final = "bold red"
DOUBTFUL: Final = "yellow"
NAME: Final = "bold cyan"
FAINT: Final = "dim"

_GAP: Final = 2
_PROSE_WIDTH_MIN: Final = 24

_STATES: Final = {
    "Stable": GOOD,
    "CompleteCommit": GOOD,
    "ok": GOOD,
    "Empty": FAINT,
    "Dead": BAD,
    "offline": BAD,
    "problem": BAD,
    "PreparingRebalance": DOUBTFUL,
    "CompletingRebalance": DOUBTFUL,
    "Ongoing": DOUBTFUL,
    "advice": DOUBTFUL,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the key of its values in a row, and how they are drawn."""

    key: str
    style: str = ""
    is_number: bool = False
    heading: str = ""
    is_prose: bool = False
    """Whether it may be broken into lines where the terminal is narrow. Names and numbers never are."""

    @property
    def title(self) -> str:
        return self.heading or self.key.replace("_", " ").upper()


def number(key: str, heading: str = "", style: str = "") -> Column:
    return Column(key, style, is_number=True, heading=heading)


def prose(key: str, style: str = "") -> Column:
    return Column(key, style, is_prose=True)


def name(key: str, heading: str = "") -> Column:
    return Column(key, NAME, heading=heading)


class Output:
    def __init__(self, *, is_json: bool = False, color: bool | None = None, is_quiet: bool = False) -> None:
        self.is_json = is_json
        self.is_quiet = is_quiet
        self.is_terminal = sys.stdout.isatty()
        self._draws = _is_drawable(sys.stdout) if color is None else color

    @property
    def has_color(self) -> bool:
        """Whether what is printed is drawn, with colour."""
        return self._draws

    # Results

    def document(self, value: Any) -> None:
        """The result as JSON."""
        print(json.dumps(value, indent=2 if self.is_terminal else None, default=_plain, ensure_ascii=False))

    def json_line(self, value: Any) -> None:
        """One of many results as a line of JSON."""
        print(json.dumps(value, default=_plain, ensure_ascii=False))

    def table(self, columns: Sequence[Column], rows: Sequence[Row], empty: str = "") -> None:
        """The result as a table, or as a list of objects; `empty` is what a person is told where there is nothing."""
        if self.is_json:
            self.document(list(rows))
        elif rows:
            self.draw(columns, rows)
        elif empty:
            self.note(empty)

    def draw(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """A table for people."""
        cells = [[_cell(row.get(column.key)) for column in columns] for row in rows]
        if self._draws:
            self._draw_rich(columns, cells)
        else:
            _draw_plain(columns, cells)

    def fields(self, pairs: Iterable[tuple[str, Any]], title: str = "") -> None:
        """Names and values, one a line."""
        shown = [(label, _cell(value)) for label, value in pairs]
        width = max((len(label) for label, _ in shown), default=0)
        if title:
            self.line(title, NAME)
        for label, value in shown:
            if self._draws:
                from rich.text import Text

                line = Text(f"  {label.ljust(width)}  ", style=FAINT)
                line.append(value, style=_STATES.get(value, ""))
                self._console().print(line, soft_wrap=True)
            else:
                print(f"  {label.ljust(width)}  {value}")

    def line(self, text: str = "", style: str = "") -> None:
        """One line of the result."""
        if self._draws:
            from rich.text import Text

            self._console().print(Text(text, style=style), soft_wrap=True)
        else:
            print(text)

    def done(self, text: str, **facts: Any) -> None:
        """That it is done: a sentence, or the facts as JSON."""
        if self.is_json:
            self.document(facts)
        else:
            self.line(text, GOOD)

    # About results

    def note(self, text: str) -> None:
        """Something to know that is no result."""
        if not self.is_quiet:
            sys.stdout.flush()  # so that it comes after what it is about, also where both go to one file
            print(text, file=sys.stderr)

    @contextlib.contextmanager
    def progress(self, what: str, total: int | None, unit: str = "records") -> Iterator[Progress]:
        """A bar on stderr while something long is done, where stderr is a terminal."""
        if self.is_quiet or self.is_json or not _is_drawable(sys.stderr):
            yield Progress()
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        shapes = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        columns = [*shapes, TextColumn(unit), TimeElapsedColumn(), TimeRemainingColumn()]
        bar = Bar(*columns, console=Console(stderr=True), transient=True, refresh_per_second=8)
        with bar:
            task = bar.add_task(what, total=total)
            yield Progress(lambda done: bar.update(task, completed=done))

    def confirm(self, question: str, *, is_agreed: bool) -> None:
        """Asks on a terminal before something that cannot be undone. A script has said so by running it."""
        if is_agreed or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UserError("nothing was changed", REFUSED)

    def _console(self, width_min: int = 0) -> Console:
        from rich.console import Console

        console = Console(highlight=False, force_terminal=True, color_system="auto" if self.is_terminal else "standard")
        if console.width < width_min:
            console.width = width_min
        return console

    def _draw_rich(self, columns: Sequence[Column], cells: list[list[str]]) -> None:
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
        width = 0
        for at, column in enumerate(columns):
            natural = max([cell_len(column.title), *(cell_len(row[at]) for row in cells)])
            least = min(natural, _PROSE_WIDTH_MIN) if column.is_prose else natural
            width += least + _GAP
            justify: Literal["right", "left"] = "right" if column.is_number else "left"
            table.add_column(
                column.title, justify=justify, overflow="fold", no_wrap=not column.is_prose, min_width=least
            )
        for row in cells:
            table.add_row(
                *(
                    Text(value, style=_STATES.get(value, FAINT if value == "-" else column.style))
                    for column, value in zip(columns, row, strict=True)
                )
            )
        # A terminal that is too narrow wraps lines itself: better than numbers that are cut.
        self._console(width).print(table)


class Progress:
    """How far something is. Does nothing where nobody watches."""

    __slots__ = ("_tell", "done")

    def __init__(self, tell: Any = None) -> None:
        self._tell = tell
        self.done = 0

    def advance(self, number: int = 1) -> None:
        self.done += number
        if self._tell is not None:
            self._tell(self.done)


def _is_drawable(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _cell(value: Any) -> str:
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple() | frozenset() | set():
            return ",".join(map(str, value)) or "-"
    return str(value)


def _draw_plain(columns: Sequence[Column], cells: list[list[str]]) -> None:
    titles = [column.title.replace(" ", "-") for column in columns]
    widths = [max(map(len, values)) for values in zip(titles, *cells, strict=True)]
    for row in [titles, *cells]:
        parts = [
            value.rjust(width) if column.is_number else value.ljust(width)
            for column, value, width in zip(columns, row, widths, strict=True)
        ]
        print("  ".join(parts).rstrip())


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
