"""`python -m mainstem.sim --seed 42` replays one run; `--seeds 1000` is a campaign, on `--jobs` cores. A run that
does not end is ended, and has failed, in either.

The same seed gives the same run, in every process, on every machine, interpreted or compiled: the hash of its trace
says so. It takes the same code and the same libraries (`versions`). Python's own hashing is pinned all the same, by
starting over with PYTHONHASHSEED set.
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from mainstem.build_info import build_name
from mainstem.sim.expected import never_happened
from mainstem.sim.versions import versions
from mainstem.sim.workers import run_in_workers
from mainstem.sim.world import TRANSACTIONAL_EVERY, Result, run_seed

SEEDS_BEFORE_FORKS: Final = 2 * TRANSACTIONAL_EVERY


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mainstem.sim", description=__doc__)
    one_or_many = parser.add_mutually_exclusive_group()
    one_or_many.add_argument("--seed", type=int, help="replay this one run")
    one_or_many.add_argument("--seeds", type=int, default=200, help="how many seeds a campaign runs")
    parser.add_argument("--trace", metavar="FILE", help="write what happens in the one run as JSON lines")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    for name in ("seeds", "jobs"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}; it must be 1 or more")
    if given.trace is not None:
        if given.seed is None:
            parser.error("--trace is for one run; say which by --seed")
        try:
            open(given.trace, "w").close()
        except OSError as error:
            parser.error(f"--trace is {given.trace}, which cannot be written: {error.strerror}")
    if os.environ.get("PYTHONHASHSEED") is None:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "mainstem.sim", *sys.argv[1:]])
    if given.seed is not None:
        return _one(given.seed, given.trace)
    return _campaign(given.first, given.seeds, given.jobs)


def _one(seed: int, path: str | None) -> int:
    def run(seed: int) -> Result:
        if path is None:
            return run_seed(seed)
        # Line by line, so that of a run that is ended everything up to there is in it.
        with open(path, "w", buffering=1) as file:
            return run_seed(seed, file)

    [result] = run_in_workers(run, [seed], 1)
    for name, count in sorted(result.counts.items()):
        print(f"{count:8} {name}")
    print(f"seed {seed}: trace {result.digest}")
    if result.violation is not None:
        print(report(result))
        return 1
    return 0


def report(result: Result) -> str:
    assert result.violation is not None
    story = "what happened last:\n" + "".join(f"  {line}\n" for line in result.story) if result.story else ""
    return (
        f"\nseed {result.seed} broke a promise: {result.violation.invariant}\n  {result.violation.what}\n"
        f"{story}with {versions()}\nreplay it with: python -m mainstem.sim --seed {result.seed}"
    )


def _results(first: int, seeds: int, jobs: int) -> Iterator[Result]:
    """The first seeds run here as well, once they are known to end: what the first runs of a process make for all later
    ones, as encoders and decoders, is made before any other worker is forked.
    """
    after = first + min(seeds, SEEDS_BEFORE_FORKS)
    for result in run_in_workers(run_seed, range(first, after), jobs):
        if result.violation is None and after < first + seeds:
            run_seed(result.seed)
        yield result
    gc.collect()
    gc.freeze()
    yield from run_in_workers(run_seed, range(after, first + seeds), jobs)


def progress(done: int, seeds: int, failed: int, seconds: float) -> str:
    rate = done / seconds
    left = round((seeds - done) / rate)
    to_go = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
    return f"{done}/{seeds} seeds, {failed} failed, {rate:.1f} a second, {to_go} to go"


def campaign(first: int, seeds: int, jobs: int) -> tuple[Counter[str], list[Result]]:
    """What was counted in all runs, and those that failed."""
    counts: Counter[str] = Counter()
    failed: list[Result] = []
    started = told = time.monotonic()
    for done, result in enumerate(_results(first, seeds, jobs), 1):
        counts += result.counts
        if result.violation is not None:
            failed.append(result)
            print(report(result), flush=True)
        now = time.monotonic()
        if now - told > (1 if sys.stdout.isatty() else 60) or done == seeds:
            told = now
            line = progress(done, seeds, len(failed), now - started)
            print(f"\r{line:70}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)
    print()
    return counts, failed


def _campaign(first: int, seeds: int, jobs: int) -> int:
    print(f"{seeds} seeds from {first} on, {jobs} at a time, on the {build_name()} build", flush=True)
    counts, failed = campaign(first, seeds, jobs)
    for name, count in sorted(counts.items()):
        print(f"{count:10} {name}")
    never = never_happened(counts, seeds)
    if never:
        print(f"these never happened, so nothing was proved about them: {', '.join(never)}")
    if failed:
        print(f"failed: {', '.join(str(each.seed) for each in sorted(failed, key=lambda each: each.seed))}")
    return 1 if failed or never else 0


if __name__ == "__main__":
    sys.exit(main())
