"""The Python in our documents, run: every block of a page, top to bottom, in one namespace."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[int, str]]:
    """The blocks of a page, each with the line it begins at."""
    text = (DOCS / page).read_text()
    return [(text.count("\n", 0, found.start()) + 2, found[1]) for found in _BLOCK.finditer(text)]


def run_page(page: str, **names: Any) -> dict[str, Any]:
    """Runs a page with `names` at hand; what it left behind. Lines in a traceback are those of the page."""
    found = blocks(page)
    assert found, f"{page} shows no Python"
    namespace: dict[str, Any] = {"__name__": "example", **names}
    for line, source in found:
        exec(compile("\n" * (line - 1) + source, str(DOCS / page), "exec"), namespace)
    return namespace
