"""Fails the run at once when the build under test is not the one that was asked for."""

import os

import pytest

from mainstem.build_info import build_name


def pytest_configure(config: pytest.Config) -> None:
    expected = os.environ.get("MAINSTEM_EXPECT")
    if expected and expected != build_name():
        raise pytest.UsageError(f"asked to test the {expected} build, but `mainstem` is the {build_name()} one")


def pytest_report_header(config: pytest.Config) -> str:
    return f"mainstem: {build_name()}"
