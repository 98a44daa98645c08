"""Pipelines that come with Mainstem, each a function to import and a command, `mainstem pipeline …`.

All of them read what is committed, show how far they are, go on where they stopped, and can be killed at any time:
nothing is lost or doubled.

A pipeline is a module here: a frozen dataclass that says what to do, and `run(spark, job)`, which follows its query
with a `progress.Watcher`. Its command is a verb in `mainstem.cli.pipeline`. A table of newest values, replay and
repartitioning have their place here.
"""
