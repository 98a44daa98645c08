"""For tests of what people build on a log: a broker in the process, and ways to make its life hard.

    with Cluster() as cluster:
        my_application(bootstrap_servers=cluster.bootstrap)

`docs/testing.md` shows it at work. The pytest plugin gives one as a fixture, `mainstem_cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mainstem.testing.cluster import Cluster

    return Cluster
