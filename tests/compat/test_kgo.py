"""franz-go's own tests of its client pass against our broker as they do against Kafka.

They come with the module from the Go proxy, at the version that `drivers/go/go.mod` names. What is left out, and why,
is in `kgo_left_out.txt`.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compat.drivers.makes import HERE, make_in_cache
from tests.support.node import Node

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(2000)]

MODULE = "github.com/twmb/franz-go"
RUN_TIMEOUT_S = 1800
LEFT_OUT = Path(__file__).parent / "kgo_left_out.txt"


def left_out() -> dict[str, str]:
    """The tests that are not run, with their reasons."""
    lines = [line for line in LEFT_OUT.read_text().splitlines() if line and not line.startswith("#")]
    return {name: reason for name, _, reason in (line.partition(": ") for line in lines)}


def sources() -> Path:
    """franz-go's sources in the cache, where its tests may be built."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed: franz-go's tests need it")
    go_mod = HERE / "go/go.mod"
    version = re.search(rf"{MODULE} (v\S+)", go_mod.read_text())
    assert version is not None

    def build(folder: Path) -> None:
        command = ["go", "mod", "download", "-json", f"{MODULE}@{version[1]}"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=True).stdout
        shutil.copytree(json.loads(said)["Dir"], folder / "module")
        for path in (folder / "module").rglob("*"):
            path.chmod(path.stat().st_mode | 0o200)

    return make_in_cache(f"kgo-{version[1]}", [go_mod], build) / "module"


def test_franz_gos_own_tests_pass(tmp_path: Path) -> None:
    skipped = "|".join(f"^{name}$" for name in left_out())
    command = ["go", "test", "-json", "-timeout", f"{RUN_TIMEOUT_S}s", "-skip", skipped, "./pkg/kgo"]
    module = sources()
    with Node(tmp_path / "node") as node, open(tmp_path / "kgo.json", "w") as out:
        environment = {"KGO_SEEDS": node.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"}
        subprocess.run(command, cwd=module, env={**os.environ, **environment}, stdout=out, timeout=RUN_TIMEOUT_S + 60)
    outcomes: dict[str, str] = {}
    said: dict[str, str] = {}
    for line in (tmp_path / "kgo.json").read_text().splitlines():
        event = json.loads(line)
        name = event.get("Test", "")
        if name and event["Action"] in ("pass", "fail", "skip") and "/" not in name:
            outcomes[name] = event["Action"]
        elif event["Action"] == "output":
            said[name] = said.get(name, "") + event["Output"]
    print({action: sum(one == action for one in outcomes.values()) for action in ("pass", "skip", "fail")})
    failed = [name for name, outcome in outcomes.items() if outcome == "fail"]
    assert len(outcomes) > 100, said.get("", "")[-3000:]
    assert not failed, "\n".join(f"{name}: {said.get(name, '')[-1500:]}" for name in failed)
