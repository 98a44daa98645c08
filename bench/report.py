"""Results as a table: on the terminal, as JSON, and between the markers of `docs/benchmarks.md`."""

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from tests.support.kafka import VERSION

from bench.frame import KAFKA, MAINSTEM, Result, Row
from mainstem.build_info import build_name

BEGIN = "<!-- measured: begin {} -->"
END = "<!-- measured: end {} -->"


def machine() -> str:
    """The machine in one line."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", info)
    memory = int(re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())[1]) / 1e6  # type: ignore[index]
    return (
        f"{os.cpu_count()} cores ({model[1] if model else platform.machine()}), {memory:.0f} GB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, {build_name()} build"
    )


def when() -> str:
    load = os.getloadavg()[0]
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load average {load:.1f}"


def table(row: Row, result: Result, pairs: int) -> str:
    """A row as Markdown, with where and when it was measured."""
    against = any(result.rounds[KAFKA])
    lines = [f"Measured {when()}; {machine()}."]
    if against:
        rival = f"Apache Kafka {VERSION}, median" if row.against == "Kafka" else "Median"
        lines[0] += f" {rival} of {pairs} alternating pairs."
    lines += ["", f"| | {row.against} | Mainstem | ratio | to reach | |" if against else "| | Mainstem | to reach | |"]
    lines.append("|---|---:|---:|---:|---|---|" if against else "|---|---:|---|---|")
    for metric in row.metrics:
        ours, kafka = result.median(MAINSTEM, metric.key), result.median(KAFKA, metric.key)
        if ours is None:
            continue
        mark = "" if not metric.goal else "reached" if metric.is_reached(ours, kafka) else "**missed**"
        cells = [f"{metric.label} ({metric.unit})" if metric.unit else metric.label]
        if against:
            goal = metric.goal.replace("Kafka", row.against)
            cells += [_number(kafka), _number(ours), _number(ours / kafka) if kafka else "", goal, mark]
        else:
            cells += [_number(ours), metric.goal, mark]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_json(row: Row, result: Result) -> dict[str, object]:
    return {
        "row": row.name,
        "when": when(),
        "machine": machine(),
        "median": {
            name: {metric.key: result.median(name, metric.key) for metric in row.metrics} for name in (KAFKA, MAINSTEM)
        },
        "rounds": result.rounds,
    }


def put_into(document: Path, row: Row, text: str) -> bool:
    """Replaces what stands between the row's markers; whether there were any."""
    content = document.read_text()
    begin, end = BEGIN.format(row.name), END.format(row.name)
    first, last = content.find(begin), content.find(end)
    if first < 0 or last < first:
        return False
    document.write_text(f"{content[: first + len(begin)]}\n{text}{content[last:]}")
    return True
