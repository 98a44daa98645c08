"""Small plots as SVG, made by hand: a report has to open anywhere, and nothing has to be installed for it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 220
MARGIN: Final = 44
TITLE_Y: Final = 22
LEGEND_ROOM: Final = 80
COLORS: Final = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1")


def bars(title: str, labels: Sequence[str], values: Sequence[float]) -> str:
    """One bar a label."""
    most = max([*values, 1])
    room = (WIDTH - 2 * MARGIN) / max(len(values), 1)
    parts = []
    for nth, (label, value) in enumerate(zip(labels, values, strict=True)):
        height = (HEIGHT - 2 * MARGIN) * value / most
        left = MARGIN + nth * room
        parts.append(
            f'<rect x="{left + room * 0.1:.1f}" y="{HEIGHT - MARGIN - height:.1f}" width="{room * 0.8:.1f}" '
            f'height="{height:.1f}" fill="{COLORS[0]}"><title>{html.escape(label)}: {value:,.0f}</title></rect>'
        )
        if len(values) <= 16:
            parts.append(_text(left + room / 2, HEIGHT - MARGIN + 16, label, "middle"))
    return _frame(title, most, parts)


def lines(title: str, labels: Sequence[str], series: dict[str, Sequence[float]]) -> str:
    """One line a series over the same labels, with a legend where there are several."""
    most = max([value for values in series.values() for value in values] or [1]) or 1
    count = max(len(labels) - 1, 1)
    parts = []
    for nth, (name, values) in enumerate(series.items()):
        color = COLORS[nth % len(COLORS)]
        points = " ".join(
            f"{MARGIN + (WIDTH - 2 * MARGIN) * at / count:.1f},"
            f"{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value / most:.1f}"
            for at, value in enumerate(values)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        if len(series) > 1:
            # Beside the title: a line that rises ends where the plot's own corner would have it run through a name.
            x = WIDTH - MARGIN - LEGEND_ROOM * (len(series) - 1 - nth)
            parts.append(f'<text x="{x}" y="{TITLE_Y}" text-anchor="end" fill="{color}">{html.escape(name)}</text>')
    if labels:
        parts.append(_text(MARGIN, HEIGHT - MARGIN + 16, labels[0], "start"))
        parts.append(_text(WIDTH - MARGIN, HEIGHT - MARGIN + 16, labels[-1], "end"))
    return _frame(title, most, parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _frame(title: str, most: float, parts: Sequence[str]) -> str:
    axes = (
        f'<line x1="{MARGIN}" y1="{HEIGHT - MARGIN}" x2="{WIDTH - MARGIN}" y2="{HEIGHT - MARGIN}" stroke="#888"/>'
        f'<line x1="{MARGIN}" y1="{MARGIN}" x2="{MARGIN}" y2="{HEIGHT - MARGIN}" stroke="#888"/>'
    )
    # Above the axis: beside it there is no room for millions.
    top = _text(4, MARGIN - 6, f"{most:,.0f}", "start")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="#333"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{MARGIN}" y="{TITLE_Y}" font-size="14">{html.escape(title)}</text>{axes}{top}{"".join(parts)}</svg>'
    )
