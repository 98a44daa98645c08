"""`python -m mainstem.spark.demo`: see `--help`. Everything it makes is in one folder, which it names at the end."""

from __future__ import annotations

import argparse
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from mainstem.spark.demo.orders import SCHEMA, Shop
from mainstem.spark.pipelines.progress import doing
from mainstem.spark.spark_session import NoSparkError, said_to, session

ORDERS: Final = "orders"
TOTALS: Final = "order-totals"
PARTITIONS: Final = 4
START_TIMEOUT_S: Final = 60.0
TICK_S: Final = 0.25
WINDOW_S: Final = 10
TOTALS_SQL: Final = f"""
select city as key, city, window.start as from, window.end as until, count(*) as orders, round(sum(amount), 2) as amount
from input group by window(at, '{WINDOW_S} seconds'), city
"""


class Broker:
    """`mainstem up` as a process of its own."""

    def __init__(self, home: Path) -> None:
        self._log = open(home / "broker.log", "ab")  # noqa: SIM115 - as long as the broker
        command = [sys.executable, "-m", "mainstem", "up", "--port", "0", "--data-dir", str(home / "broker")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = os.read(self._process.stdout.fileno(), 4096).decode() if ready else ""
        if not line.startswith("ready "):
            self.stop()
            raise RuntimeError(f"the broker did not start; {home / 'broker.log'} says why")
        self.bootstrap = next(word for word in line.split() if ":" in word).strip(",")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


class Generator(threading.Thread):
    """Sends orders at a steady rate until its time is over."""

    def __init__(self, bootstrap: str, rate: int, seconds: float, seed: int) -> None:
        super().__init__(name="generator", daemon=True)
        self._servers = bootstrap
        self._rate = rate
        self._seconds = seconds
        self.shop = Shop(seed)
        self.sent = 0
        self.malformed = 0
        self.late = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._send()
        except BaseException as error:  # told by the main thread
            self.failure = error

    def _send(self) -> None:
        from mainstem.client.sync_producer import Producer

        began = time.monotonic()
        with Producer(bootstrap_servers=self._servers, linger_ms=20) as producer:
            while (elapsed := time.monotonic() - began) < self._seconds:
                due = int(self._rate * elapsed) - self.sent
                for event in self.shop.orders(due, time.time()):
                    producer.send(ORDERS, value=event.value, key=event.key)
                    self.malformed += event.is_malformed
                    self.late += event.is_late
                self.sent += max(due, 0)
                time.sleep(TICK_S)
            producer.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="mainstem demo", description="Orders of a shop, from a broker to a lake.")
    parser.add_argument("--seconds", type=float, default=60, help="how long orders come (default 60)")
    parser.add_argument("--rate", type=int, default=2000, help="orders a second (default 2000)")
    parser.add_argument(
        "--home", type=Path, default=Path("build/demo"), help="where everything goes (default build/demo)"
    )
    parser.add_argument("--seed", type=int, default=7, help="which orders (default 7)")
    given = parser.parse_args()
    try:
        return Demo(given.home.resolve(), given.seconds, given.rate, given.seed).run()
    except NoSparkError as error:
        print(error, file=sys.stderr)
        return 2


class Demo:
    def __init__(self, home: Path, seconds: float, rate: int, seed: int) -> None:
        self._home = home
        self._seconds = seconds
        self._rate = rate
        self._seed = seed
        self._is_terminal = sys.stdout.isatty()
        self._shown = 0
        self._history: list[tuple[float, int, int]] = []

    def run(self) -> int:
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir(parents=True)
        print("starting Spark and a broker ...", flush=True)
        settings = {
            "spark.log.level": "OFF",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
        }
        with said_to(self._home / "spark.log"):
            spark = session("mainstem demo", None, settings)
        broker = Broker(self._home)
        try:
            return self._play(spark, broker.bootstrap)
        finally:
            spark.stop()
            broker.stop()

    def _play(self, spark: Any, bootstrap: str) -> int:
        from mainstem.client.admin_types import NewTopic
        from mainstem.client.sync_admin import Admin
        from mainstem.spark.pipelines import transform

        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(ORDERS, PARTITIONS, 1), NewTopic(TOTALS, 1, 1)])
        totals = transform.start(
            spark,
            transform.Transform(
                bootstrap=bootstrap,
                source=ORDERS,
                target=TOTALS,
                checkpoint=self._home / "totals-checkpoint",
                schema=SCHEMA,
                watermark=("at", "30 seconds"),
                output_mode="update",
            ),
            TOTALS_SQL,
            continuous=True,
        )
        landing = self._start_lake(spark, bootstrap)
        queries = {"totals": totals, "lake": landing}
        generator = Generator(bootstrap, self._rate, self._seconds, self._seed)
        generator.start()
        self._watch(generator, queries)
        for query in queries.values():
            query.processAllAvailable()
            query.stop()
        self._show(generator, queries, "done")
        return self._conclude(spark, bootstrap, generator)

    def _start_lake(self, spark: Any, bootstrap: str) -> Any:
        from mainstem.spark.pipelines import lake

        job = lake.Lake(bootstrap, ORDERS, self._home / "lake", SCHEMA, "at")
        return lake.start(spark, job, continuous=True)

    def _watch(self, generator: Generator, queries: dict[str, Any]) -> None:
        while generator.is_alive():
            for name, query in queries.items():
                if not query.isActive:
                    raise RuntimeError(f"the pipeline {name} ended: {query.exception()}")
            self._show(generator, queries, "orders come")
            time.sleep(1)
        if generator.failure is not None:
            raise generator.failure

    def _show(self, generator: Generator, queries: dict[str, Any], state: str) -> None:
        """A few lines, written over in a terminal."""
        lines = [f"{state}: {generator.sent:,} sent, {generator.late:,} late, {generator.malformed:,} malformed"]
        landed = 0
        for name, query in queries.items():
            progress = query.lastProgress
            if progress is None:
                lines.append(f"  {name:7} {doing(query.status['message'])}")
                continue
            read = sum(sum(numbers.values()) for numbers in _offsets(progress).values())
            landed = read if name == "lake" else landed
            took = progress["durationMs"].get("triggerExecution", 0)
            lines.append(
                f"  {name:7} batch {progress['batchId']:3}: {read:9,} read, {generator.sent - read:6,} behind, "
                f"{progress['numInputRows']:6,} rows in {took:5,} ms"
            )
        self._history.append((time.monotonic(), generator.sent, landed))
        if self._is_terminal:
            if self._shown:
                print(f"\x1b[{self._shown}F\x1b[J", end="")
            print("\n".join(lines), flush=True)
            self._shown = len(lines)
        elif len(self._history) % 10 == 1 or state == "done":
            print("\n".join(lines), flush=True)

    def _conclude(self, spark: Any, bootstrap: str, generator: Generator) -> int:
        from mainstem.spark.pipelines import audit, lake, plots

        print("auditing ...", flush=True)
        rows = lake.rows(spark, self._home / "lake")
        bad = lake.rows(spark, self._home / "lake", lake.BAD)
        report = audit.compare(
            audit.topic_frame(spark, bootstrap, ORDERS).selectExpr("partition", "offset"),
            rows.selectExpr("_partition as partition", "_offset as offset").unionAll(
                bad.selectExpr("_partition as partition", "_offset as offset")
            ),
            (ORDERS, "the lake"),
        )
        numbers = rows.selectExpr("count(number) n", "count(distinct number) d", "max(number) m").collect()[0]
        whole = numbers.n == numbers.d == numbers.m == generator.shop.made
        report.findings.append(
            audit.Finding(
                "Is every order in the lake once?",
                whole,
                f"{numbers.n:,} orders, {numbers.d:,} numbers, of {generator.shop.made:,} that were made",
            )
        )
        report.findings.append(
            audit.Finding(
                "Is every malformed one set aside?",
                bad.count() == generator.malformed,
                f"{bad.count():,} of {generator.malformed:,}",
            )
        )
        report.findings.append(self._totals(spark, bootstrap, rows))
        began = self._history[0][0]
        report.plots.insert(
            0,
            plots.lines(
                "Orders sent and landed",
                [f"{at - began:.0f} s" for at, _, _ in self._history],
                {"sent": [sent for _, sent, _ in self._history], "landed": [landed for _, _, landed in self._history]},
            ),
        )
        (self._home / "demo.svg").write_text(report.plots[0], encoding="utf-8")
        report.write(self._home / "audit.html")
        print(report.to_text())
        print(f"\nthe lake: {self._home / 'lake'}\nthe plot: {self._home / 'demo.svg'}")
        print(f"the audit: {self._home / 'audit.html'}")
        return 0 if report.is_good else 1

    def _totals(self, spark: Any, bootstrap: str, rows: Any) -> Any:
        """The last total of every window and city, beside what the lake says."""
        from pyspark.sql import functions as f

        from mainstem.spark.pipelines import audit

        told = (
            audit.topic_frame(spark, bootstrap, TOTALS)
            .selectExpr("offset", "from_json(cast(value as string), 'city string, from timestamp, orders bigint') t")
            .groupBy("t.city", "t.from")
            .agg(f.max_by("t.orders", "offset").alias("orders"))
        )
        counted = rows.groupBy("city", f.window("at", f"{WINDOW_S} seconds").start.alias("from")).agg(
            f.count("*").alias("orders")
        )
        differ = told.join(counted, ["city", "from"], "full_outer").where(
            told.orders.eqNullSafe(counted.orders) == f.lit(False)
        )
        count = differ.count()
        return audit.Finding(
            "Do the totals by window agree with the lake?", count == 0, "yes" if count == 0 else f"no: {count} differ"
        )


def _offsets(progress: Any) -> dict[str, dict[str, int]]:
    import json

    end = progress["sources"][0]["endOffset"]
    return json.loads(end) if isinstance(end, str) else end or {}


if __name__ == "__main__":
    sys.exit(main())
