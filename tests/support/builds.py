"""Which build a long test runs in, where one of the two proves as much as both."""

import os
import shutil
import sysconfig

from mainstem.build_info import build_name


def is_fastest() -> bool:
    """Whether this is the compiled build, or there is no C compiler to make one."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return build_name() == "compiled" or shutil.which(compiler.split()[0]) is None
