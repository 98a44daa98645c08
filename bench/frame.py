"""What a row of the benchmarks is, how it is repeated, and how its figures become ratios.

A row that compares runs both brokers side by side: a round that is not counted, then pairs, of which every second one
begins with the other broker, so that whatever else the machine does meets both. What is told is the median of the
pairs, and the ratio of the medians.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from bench.systems import KafkaSystem, MainstemSystem, System

KAFKA: Final = "kafka"
MAINSTEM: Final = "mainstem"

Figures = dict[str, float]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a row, and what it is to reach: as a ratio to Kafka, or in itself."""

    key: str
    label: str
    unit: str
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def goal(self) -> str:
        if self.ratio_at_least is not None:
            return f"≥ {self.ratio_at_least:g} × Kafka"
        if self.ratio_at_most is not None:
            return f"≤ {self.ratio_at_most:g} × Kafka"
        if self.at_most is not None:
            return f"≤ {self.at_most:g} {self.unit}".rstrip()
        if self.at_least is not None:
            return f"≥ {self.at_least:g} {self.unit}".rstrip()
        return ""

    def is_reached(self, ours: float, kafka: float | None) -> bool:
        ratio = None if not kafka else ours / kafka
        return (
            (self.ratio_at_least is None or ratio is None or ratio >= self.ratio_at_least)
            and (self.ratio_at_most is None or ratio is None or ratio <= self.ratio_at_most)
            and (self.at_most is None or ours <= self.at_most)
            and (self.at_least is None or ours >= self.at_least)
        )


@dataclass(slots=True)
class Result:
    """The figures of a row as they were measured, by broker, one entry a round."""

    rounds: dict[str, list[Figures]] = field(default_factory=lambda: {KAFKA: [], MAINSTEM: []})

    def median(self, system: str, key: str) -> float | None:
        found = [figures[key] for figures in self.rounds[system] if key in figures]
        return median(found) if found else None


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    title: str
    metrics: tuple[Metric, ...]
    run: Callable[["Setting"], Result]
    against: str = "Kafka"
    """What the first column is."""


@dataclass(slots=True)
class Setting:
    """What a run of rows shares: where to put data, how many pairs, whether Kafka is there, whom to tell."""

    home: Path
    pairs: int
    with_kafka: bool
    say: Say
    used: int = 0

    def systems(self) -> dict[str, System]:
        """Both brokers, not started, on data of their own."""
        self.used += 1
        made: dict[str, System] = {MAINSTEM: MainstemSystem(self.home / f"{self.used}-mainstem")}
        if self.with_kafka:
            made[KAFKA] = KafkaSystem(self.home / f"{self.used}-kafka")
        return made


def alternate(setting: Setting, systems: dict[str, System], measure: Callable[[System], Figures]) -> Result:
    """A round to warm up, then pairs."""
    result = Result()
    order = [systems[name] for name in (KAFKA, MAINSTEM) if name in systems]
    for system in order:
        measure(system)
    for pair in range(setting.pairs):
        for system in order if pair % 2 == 0 else reversed(order):
            figures = measure(system)
            result.rounds[system.name].append(figures)
            shown = ", ".join(f"{key} {value:,.3g}" for key, value in figures.items())
            setting.say(f"  {pair + 1}/{setting.pairs} {system.name:9} {shown}")
    return result


def side_by_side(measure: Callable[[System], Figures]) -> Callable[[Setting], Result]:
    """A row whose work is done again and again on two brokers that run all the while."""

    def run(setting: Setting) -> Result:
        systems = setting.systems()
        try:
            for system in systems.values():
                system.start()
            return alternate(setting, systems, measure)
        finally:
            for system in systems.values():
                system.kill()

    return run


def one_by_one(measure: Callable[[System], Figures], warm_up: bool = True) -> Callable[[Setting], Result]:
    """A row about starting: each round takes a broker that is not running yet, on a new directory."""

    def run(setting: Setting) -> Result:
        result = Result()
        for pair in range(setting.pairs + (1 if warm_up else 0)):
            systems = setting.systems()
            names = [name for name in (KAFKA, MAINSTEM) if name in systems]
            for name in names if pair % 2 == 0 else reversed(names):
                system = systems[name]
                try:
                    figures = measure(system)
                finally:
                    system.kill()
                if pair > 0 or not warm_up:
                    result.rounds[name].append(figures)
                shown = ", ".join(f"{key} {value:,.3g}" for key, value in figures.items())
                setting.say(f"  {pair + 1} {name:9} {shown}")
        return result

    return run


def ours_alone(measure: Callable[[], Figures]) -> Callable[[Setting], Result]:
    """A row without a broker: what a part of ours costs."""

    def run(setting: Setting) -> Result:
        result = Result()
        result.rounds[MAINSTEM].append(measure())
        return result

    return run
