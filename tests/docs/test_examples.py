"""The examples work as their words say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from deepstone.graph.graph import Graph
from deepstone.models.load import load_in_process

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(tmp_path: Path, *words: str) -> Any:
    own = {"DEEPSTONE_STORE": str(tmp_path / "store"), "DEEPSTONE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [Path(sys.executable).with_name("deepstone"), "run", *words, "--json"],
        env={**os.environ, **own},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_network_of_ones_own() -> None:
    graph = load_in_process(f"{EXAMPLES / 'my_network.py'}:make").graph
    assert graph.name == "my-network"
    assert graph.shapes["pool3"] == (128, 4, 4)
    assert graph.classes == 10


def test_a_graph_in_json_is_what_the_graph_gives() -> None:
    text = (EXAMPLES / "residual.json").read_text(encoding="utf-8")
    graph = Graph.from_json(json.loads(text))
    assert graph.to_json() == json.loads(text)
    assert graph.layer("block2.add").inputs == ("block2.norm2", "block1.relu2")


def test_a_network_of_ones_own_runs(tmp_path: Path) -> None:
    record = run(tmp_path, "examples/my_network.py:make", "framework=fake", "--budget", "1")
    assert record["outcome"] == "ok"
    assert record["workload"]["model"] == "my-network"


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_graph_in_json_runs_on_torch(tmp_path: Path) -> None:
    record = run(tmp_path, "examples/residual.json", "device=cpu", "batch=2", "threads=1", "--budget", "0.2")
    assert record["outcome"] == "ok"
    assert record["workload"]["source"] == str(EXAMPLES / "residual.json")
