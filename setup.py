"""Compiles the hot modules with mypyc; everything else about the build is in pyproject.toml.

With a C compiler and Python's headers the modules below become native code; without, or with MAINSTEM_COMPILE=0, the
same source is installed as it is and runs interpreted. MAINSTEM_COMPILE=1 makes it an error that one is missing.
"""

import os
import shutil
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

# One list, and nothing else decides what is compiled. A module belongs here when it runs per batch or per record, or,
# of the simulator, per step. Not a class that adds no attribute to a compiled one that has some: the collector does not
# see what such an object holds, and a cycle through it stays for ever.
COMPILED = [
    "src/mainstem/broker/apis/k00_produce.py",
    "src/mainstem/broker/apis/k01_fetch.py",
    "src/mainstem/broker/context.py",
    "src/mainstem/broker/drivers/controller.py",
    "src/mainstem/broker/drivers/coordinator.py",
    "src/mainstem/broker/drivers/markers.py",
    "src/mainstem/broker/drivers/metadata_snapshots.py",
    "src/mainstem/broker/drivers/quorum.py",
    "src/mainstem/broker/drivers/verification.py",
    "src/mainstem/broker/fetch_sessions.py",
    "src/mainstem/broker/housekeeping.py",
    "src/mainstem/broker/partition.py",
    "src/mainstem/broker/purgatory.py",
    "src/mainstem/broker/router.py",
    "src/mainstem/client/accumulator.py",
    "src/mainstem/client/batches.py",
    "src/mainstem/client/decode.py",
    "src/mainstem/client/partitioner.py",
    "src/mainstem/client/sync_producer.py",
    "src/mainstem/client/types.py",
    "src/mainstem/core/controller/image.py",
    "src/mainstem/core/controller/leadership.py",
    "src/mainstem/core/controller/states.py",
    "src/mainstem/core/controller/versions.py",
    "src/mainstem/core/group/classic.py",
    "src/mainstem/core/group/machine.py",
    "src/mainstem/core/group/rebalance.py",
    "src/mainstem/core/group/records.py",
    "src/mainstem/core/group/store.py",
    "src/mainstem/core/log/append_result.py",
    "src/mainstem/core/log/compaction.py",
    "src/mainstem/core/log/epochs.py",
    "src/mainstem/core/log/preparation.py",
    "src/mainstem/core/log/producers.py",
    "src/mainstem/core/log/validation.py",
    "src/mainstem/core/log/verification.py",
    "src/mainstem/core/raft/quorum.py",
    "src/mainstem/core/replication/leader.py",
    "src/mainstem/core/txn/records.py",
    "src/mainstem/net/connection.py",
    "src/mainstem/protocol/batch.py",
    "src/mainstem/protocol/builder.py",
    "src/mainstem/protocol/columns.py",
    "src/mainstem/protocol/compression.py",
    "src/mainstem/protocol/control.py",
    "src/mainstem/protocol/fetch.py",
    "src/mainstem/protocol/framing.py",
    "src/mainstem/protocol/headers.py",
    "src/mainstem/protocol/java.py",
    "src/mainstem/protocol/messages/record_framing.py",
    "src/mainstem/protocol/plain_records.py",
    "src/mainstem/protocol/primitives.py",
    "src/mainstem/protocol/produce.py",
    "src/mainstem/protocol/records.py",
    "src/mainstem/protocol/rpc.py",
    "src/mainstem/protocol/varint.py",
    "src/mainstem/sim/changes.py",
    "src/mainstem/sim/checkers/__init__.py",
    "src/mainstem/sim/checkers/appended_once.py",
    "src/mainstem/sim/checkers/compaction_keeps.py",
    "src/mainstem/sim/checkers/coordinator_replays.py",
    "src/mainstem/sim/checkers/crash_keeps.py",
    "src/mainstem/sim/checkers/failed_directory.py",
    "src/mainstem/sim/checkers/groups_live_on.py",
    "src/mainstem/sim/checkers/log_order.py",
    "src/mainstem/sim/checkers/markers_outlive.py",
    "src/mainstem/sim/checkers/metadata_replays.py",
    "src/mainstem/sim/checkers/moves_end.py",
    "src/mainstem/sim/checkers/no_hanging_transactions.py",
    "src/mainstem/sim/checkers/offsets_follow.py",
    "src/mainstem/sim/checkers/producer_ids_rotate.py",
    "src/mainstem/sim/checkers/producers_are_known.py",
    "src/mainstem/sim/checkers/settings_are_in_force.py",
    "src/mainstem/sim/checkers/stable_offset.py",
    "src/mainstem/sim/checkers/transactions_have_their_time.py",
    "src/mainstem/sim/client.py",
    "src/mainstem/sim/disk.py",
    "src/mainstem/sim/faults.py",
    "src/mainstem/sim/group_members.py",
    "src/mainstem/sim/group_shards.py",
    "src/mainstem/sim/ledger.py",
    "src/mainstem/sim/loop.py",
    "src/mainstem/sim/movers.py",
    "src/mainstem/sim/network.py",
    "src/mainstem/sim/stager.py",
    "src/mainstem/sim/steps.py",
    "src/mainstem/sim/trace.py",
    "src/mainstem/sim/txn_logs.py",
    "src/mainstem/sim/txn_members.py",
    "src/mainstem/sim/txn_workload.py",
    "src/mainstem/sim/workloads.py",
    "src/mainstem/sim/written.py",
    "src/mainstem/storage/aborted.py",
    "src/mainstem/storage/batch_filter.py",
    "src/mainstem/storage/cleaner.py",
    "src/mainstem/storage/cleaning.py",
    "src/mainstem/storage/cleaning_map.py",
    "src/mainstem/storage/duplicates.py",
    "src/mainstem/storage/durable_log.py",
    "src/mainstem/storage/errors.py",
    "src/mainstem/storage/flushing.py",
    "src/mainstem/storage/fs.py",
    "src/mainstem/storage/index_file.py",
    "src/mainstem/storage/leader_epoch_file.py",
    "src/mainstem/storage/log.py",
    "src/mainstem/storage/log_copy.py",
    "src/mainstem/storage/names.py",
    "src/mainstem/storage/offset_index.py",
    "src/mainstem/storage/open_files.py",
    "src/mainstem/storage/posix.py",
    "src/mainstem/storage/producer_store.py",
    "src/mainstem/storage/readable_log.py",
    "src/mainstem/storage/reading.py",
    "src/mainstem/storage/recovery.py",
    "src/mainstem/storage/replay.py",
    "src/mainstem/storage/restructured_log.py",
    "src/mainstem/storage/restructuring.py",
    "src/mainstem/storage/retention.py",
    "src/mainstem/storage/scan.py",
    "src/mainstem/storage/segment.py",
    "src/mainstem/storage/segments.py",
    "src/mainstem/storage/snapshot.py",
    "src/mainstem/storage/swapping.py",
    "src/mainstem/storage/time_index.py",
    "src/mainstem/storage/timestamps.py",
    "src/mainstem/storage/txn_index.py",
]


def what_compiling_lacks() -> str:
    """Nothing where it can be done. Many machines have a compiler and not Python's headers."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"C compiler ({compiler})"
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return "" if os.path.exists(header) else f"{header} (Debian's package python3-dev has it)"


def extensions() -> list[Any]:
    wanted = os.environ.get("MAINSTEM_COMPILE", "auto")
    if wanted == "0":
        return []
    if wanted == "auto" and (missing := what_compiling_lacks()):
        print(f"There is no {missing}, so nothing is compiled: Mainstem runs interpreted, the same and slower.")
        return []
    from mypyc.build import mypycify

    found = list(mypycify(COMPILED, opt_level="3", debug_level="0", target_dir="build/mypyc", multi_file=True))
    for extension in found:
        # What is visible may be replaced when the library is loaded, so a call between two of our own functions would
        # go through a table and never be inlined. Only the entry points, which say so themselves, are for others.
        # And a product is rounded before it is added to something, as Python does it: on processors that can do both at
        # once a simulated run would be another one than interpreted.
        wanted = ("-fvisibility=hidden", "-ffp-contract=off")
        extension.extra_compile_args = [*extension.extra_compile_args, *wanted]
    return found


def changed_at(path: str) -> float:
    return os.path.getmtime(path) if os.path.exists(path) else 0.0


class BuildOnAllCores(build_ext):
    """One C file a module, on all cores, and only what changed: as one file they take three times as long."""

    def build_extensions(self) -> None:
        compiler: Any = self.compiler

        def compile_all(
            sources: list[str],
            output_dir: str | None = None,
            macros: Any = None,
            include_dirs: list[str] | None = None,
            debug: bool = False,
            extra_preargs: list[str] | None = None,
            extra_postargs: list[str] | None = None,
            depends: list[str] | None = None,
        ) -> list[str]:
            _, objects, post_args, pp_opts, build = compiler._setup_compile(
                output_dir, macros, include_dirs, sources, depends, extra_postargs
            )
            cc_args = compiler._get_cc_args(pp_opts, debug, extra_preargs)
            # mypyc leaves a file alone that would not change, and all of them read all of its headers.
            shared = max(changed_at(path) for path in [__file__, *glob("build/mypyc/*.h")])
            stale = [o for o in build if changed_at(o) < max(shared, changed_at(build[o][0]))]

            def compile_one(target: str) -> None:
                compiler._compile(target, *build[target], cc_args, post_args, pp_opts)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(compile_one, sorted(stale, key=lambda o: -os.path.getsize(build[o][0]))))
            return list(objects)

        compiler.compile = compile_all
        super().build_extensions()


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOnAllCores})
