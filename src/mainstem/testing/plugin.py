"""The pytest plugin: `mainstem_cluster`, and `fresh_mainstem_cluster` for tests that break it.

Nothing of the broker is imported before a test asks for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mainstem.testing.cluster import Cluster


@pytest.fixture(scope="session")
def _shared_mainstem_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from mainstem.testing.cluster import Cluster

    with Cluster(data_dir=tmp_path_factory.mktemp("mainstem")) as cluster:
        yield cluster


@pytest.fixture
def mainstem_cluster(_shared_mainstem_cluster: Cluster) -> Iterator[Cluster]:
    """A broker in this process, one for the whole run. Faults that a test asked for end with it."""
    yield _shared_mainstem_cluster
    _shared_mainstem_cluster.heal()
    _shared_mainstem_cluster.start()


@pytest.fixture
def fresh_mainstem_cluster() -> Iterator[Cluster]:
    """A broker of this test's own, empty."""
    from mainstem.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
