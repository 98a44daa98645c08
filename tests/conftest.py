"""Fails the run at once when the build under test is not the one that was asked for.

How quick the machine is at some moment is no property of the code: Hypothesis must not fail a test for it.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from mainstem.build_info import build_name

settings.register_profile("mainstem", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mainstem")


def pytest_configure(config: pytest.Config) -> None:
    expected = os.environ.get("MAINSTEM_EXPECT")
    if expected and expected != build_name():
        raise pytest.UsageError(f"asked to test the {expected} build, but `mainstem` is the {build_name()} one")


def pytest_report_header(config: pytest.Config) -> str:
    return f"mainstem: {build_name()}"
