"""What the client is tested against: our broker in `make test`, all of `tests/support/targets` in `make test-client`."""

import pytest

from tests.support.targets import Target, target

__all__ = ["bootstrap", "target"]


@pytest.fixture
def bootstrap(target: Target) -> str:
    """The address of a broker that runs for the whole session."""
    return target.bootstrap
