"""What a worker process keeps from task to task."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_SCRIPT = """
import resource
from mainstem.spark.loop import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        [bytes([nth + 1]) * (8 << 20) for nth in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_memory()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_that_is_freed_is_kept_for_the_next_buffer() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < 10 * 8 * (8 << 20) / 4096 / 5
