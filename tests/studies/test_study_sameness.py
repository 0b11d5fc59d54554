"""Frameworks of a study are compared only once they were checked to compute the same: for real, on a tiny network."""

from __future__ import annotations

import json
from pathlib import Path

from study_kit import performed, planned

from deepstone.store.store import Store

SMALL = {
    "schema": 1,
    "name": "small",
    "layers": [
        {"name": "data", "op": "input", "inputs": [], "shape": [2, 6, 6]},
        {"name": "flatten", "op": "flatten", "inputs": ["data"]},
        {"name": "fc", "op": "dense", "inputs": ["flatten"], "features": 4, "bias": True},
        {"name": "loss", "op": "softmax_cross_entropy", "inputs": ["fc"], "weight": 1.0},
    ],
}


def test_frameworks_are_checked_to_compute_the_same(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    file.write_text(json.dumps(SMALL))
    once = {"repetitions": 1, "budget": 0.05, "target": 50}
    state = performed(planned({"model": str(file), "framework": ["torch", "tensorflow"]}, effort=once), store)
    assert [(status.state, status.why) for status in state.tasks] == [("done", ""), ("done", "")]
    (network,) = {status.task.model for status in state.tasks}
    assert state.sameness == {network: {"torch": True, "tensorflow": True}}
    kept = store.studies.get("test")
    assert kept is not None
    assert kept.sameness == state.sameness


def test_one_framework_needs_no_check(store: Store) -> None:
    assert performed(planned({"batch": [1, 2]}), store).sameness == {}
