"""The scripts of bench/ still run, each with the least that it can be asked for, and tell what they are there for."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deepstone.runner.job import Machine
from deepstone.setups.tuning import Facts
from deepstone.tuner.facts import units_of_cpu

BENCH = Path(__file__).resolve().parents[2] / "bench"
FIDELITY = ("fidelity.py", "--models", "cifarnet", "--rounds", "1", "--round-s", "0.01")
LAYERS = ("layer_timing.py", "--model", "cifarnet", "--batch", "2", "--rounds", "1", "--steps", "1")
PARALLEL = ("parallel_fidelity.py", "loop", "--model", "cifarnet", "--batch", "4", "--seconds", "0.1")
COMM = ("comm_fidelity.py", "--transports", "gloo", "--sizes", "1024", "--rounds", "2", "--round-s", "0.01")
LOOPS = ("idiomatic_loops.py", "torch", "--models", "alexnet-owt", "--rounds", "1", "--round-s", "0.01")


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        pytest.param(FIDELITY, {"model", "rounds", "bare_step_s", "ratio_to_bare"}, id="fidelity"),
        pytest.param(PARALLEL, {"model", "processes", "ratio_to_by_hand"}, id="parallel", marks=pytest.mark.deep),
        pytest.param(COMM, {"transport", "bytes", "bare_s", "ratio_to_bare"}, id="comm", marks=pytest.mark.deep),
        pytest.param(LAYERS, {"model", "batch", "ratio_to_plain"}, id="layer_timing", marks=pytest.mark.deep),
        pytest.param(LOOPS, {"framework", "by_hand_step_s", "deepstone_step_s"}, id="loops", marks=pytest.mark.deep),
    ],
)
def test_it_runs(words: tuple[str, ...], keys: set[str], tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "DEEPSTONE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, str(BENCH / words[0]), *words[1:], "-o", str(output)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(output.read_text())
    assert keys <= set(found[0] if isinstance(found, list) else found)


@pytest.mark.parametrize(
    "flags", [("avx512_bf16",), ("avx512_bf16", "amx_tile", "amx_bf16"), ("avx2",), ("amx_tile", "amx_bf16")]
)
def test_a_table_has_the_matrix_units_of_its_machine(flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the product tells them of the same machine."""
    monkeypatch.syspath_prepend(str(BENCH))
    table: Any = importlib.import_module("tune_table")
    names = {"avx2": "avx2", "avx512_bf16": "avx512_core_bf16", "amx_tile": "avx512_core_amx"}
    facts = Facts(device="cpu", frameworks=("torch",), isa=tuple(names[flag] for flag in flags if flag in names))
    cpu = replace(Machine.here().cpu, flags=list(flags))
    made = table.Table(head={"model": "cifarnet", "words": ["batch=32"]}, axes=(), facts=facts)
    assert made.advice_facts().matrix_units == units_of_cpu(cpu)


def test_a_replay_tells_what_the_answer_names_beside_what_the_search_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time for a few launches the finals decide nothing, so the answer stays with the default."""
    monkeypatch.syspath_prepend(str(BENCH))
    replay: Any = importlib.import_module("tune_replay")
    table = replay.synthetic(0, noise=0.003)
    (one,) = replay.replays(table, 1, 0.02)
    result = replay.ours(one)
    assert (result.named, result.answered) == (False, table.default)
    assert result.chosen != table.default
    row = replay.measured([table], {"deepstone": replay.ours}, 1, 0.02)["deepstone"]
    assert row["answered"] == pytest.approx(math.exp(one.truth[table.default] - one.best))
    assert row["answered"] < row["speed"]
