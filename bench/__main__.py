"""`python -m bench [ROW ...]`: Apache Kafka and Mainstem side by side, row by row; `make bench` runs it.

Without names all rows run, one after the other. Where Java or Maven is missing, Mainstem is measured alone and nothing
is written to the document.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.support.kafka import missing

from bench.frame import Setting
from bench.report import as_json, put_into, table
from bench.rows import ROWS
from mainstem.build_info import build_name

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def main() -> int:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one or more of {', '.join(names)} (default: all)")
    parser.add_argument("--pairs", type=int, default=5, help="how many alternating pairs (default 5)")
    parser.add_argument("--json", action="store_true", help="print every round as JSON, one object a row")
    parser.add_argument("--without-kafka", action="store_true", help="measure Mainstem alone")
    parser.add_argument("--dry", action="store_true", help="leave docs/benchmarks.md as it is")
    given = parser.parse_args()
    unknown = [name for name in given.rows if name not in names]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(names)}")
    reason = "it was not wanted" if given.without_kafka else missing()
    if reason is not None:
        print(f"Apache Kafka is not measured: {reason}", file=sys.stderr)
    if build_name() != "compiled":
        print("this is the interpreted build: the figures say little about what users run", file=sys.stderr)
    home = Path(tempfile.mkdtemp(prefix="mainstem-bench-"))
    setting = Setting(home, given.pairs, reason is None, lambda text: print(text, file=sys.stderr, flush=True))
    try:
        for row in ROWS:
            if given.rows and row.name not in given.rows:
                continue
            setting.say(f"{row.name}: {row.title}")
            began = time.monotonic()
            result = row.run(setting)
            setting.say(f"  took {time.monotonic() - began:.0f} s")
            text = table(row, result, given.pairs)
            print(json.dumps(as_json(row, result)) if given.json else f"\n{row.title}\n\n{text}", flush=True)
            if not given.dry and reason is None:
                put_into(DOCUMENT, row, text)
            for left in home.iterdir():
                shutil.rmtree(left)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
