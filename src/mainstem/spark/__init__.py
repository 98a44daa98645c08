"""Mainstem on Spark: a source and a sink for topics, a source for segment files, pipelines, and a session made right.

Spark finds the source by the package `pyspark_mainstem`; nothing has to be registered.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mainstem.spark.source import MainstemSource
    from mainstem.spark.spark_session import session

_HOMES: Final = {"session": "spark_session", "MainstemSource": "source"}

__all__ = ["MainstemSource", "session"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
