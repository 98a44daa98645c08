"""The command line is tried against what the client is tried against: our broker, and Kafka in a campaign."""

from uuid import uuid4

import pytest

from tests.cli.shell import Shell
from tests.support.targets import Target, target

__all__ = ["shell", "target", "topic"]


@pytest.fixture(scope="session")
def shell(target: Target) -> Shell:
    return Shell(target.bootstrap)


@pytest.fixture
def topic(shell: Shell) -> str:
    """A topic with two partitions that nobody else uses."""
    name = f"orders-{uuid4().hex[:8]}"
    shell.check("topics", "create", name, "--partitions", "2")
    while name not in shell.run("topics", "list", name).out or shell.run("topics", "describe", name).code:
        pass  # on Kafka it takes a moment until every broker knows
    return name
