"""Compiles the hot modules with mypyc; everything else about the build is in pyproject.toml.

With a C compiler the modules below become native code; without one, or with MAINSTEM_COMPILE=0, the same
source is installed as it is and runs interpreted. MAINSTEM_COMPILE=1 makes a missing compiler an error.
"""

import os
import shutil
import sysconfig

from setuptools import setup

# One list, and nothing else decides what is compiled. A module belongs here when it runs per batch or per record.
COMPILED = [
    "src/mainstem/protocol/batch.py",
    "src/mainstem/protocol/builder.py",
    "src/mainstem/protocol/columns.py",
    "src/mainstem/protocol/compression.py",
    "src/mainstem/protocol/control.py",
    "src/mainstem/protocol/records.py",
    "src/mainstem/protocol/varint.py",
    "src/mainstem/storage/fs.py",
    "src/mainstem/storage/posix.py",
]


def extensions() -> list[object]:
    wanted = os.environ.get("MAINSTEM_COMPILE", "auto")
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if wanted == "0" or (wanted == "auto" and shutil.which(compiler.split()[0]) is None):
        return []
    from mypyc.build import mypycify

    return list(mypycify(COMPILED, opt_level="3", debug_level="0", target_dir="build/mypyc"))


setup(ext_modules=extensions())
