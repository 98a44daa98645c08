"""Pipelines that come with Mainstem, each a function to import and a command, `mainstem pipeline …`.

All of them read what is committed, go on where they stopped, and can be killed at any time: nothing is lost or
doubled.
A pipeline is a module with a `PIPELINE`, named in `NAMES`: a table of newest values, replay and repartitioning have
their place here.
"""

from typing import Final

NAMES: Final = ("lake", "transform", "audit")
