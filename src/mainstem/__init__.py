"""Mainstem: a distributed, replicated commit log that speaks Kafka's protocol."""

from mainstem._version import VERSION

__version__ = VERSION

__all__ = ["__version__"]
