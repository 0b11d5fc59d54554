"""Frameworks of a study are compared only once they were checked to compute the same: for real, on a tiny network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from study_kit import performed, planned

from deepstone.environments.find import find_environment
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


@pytest.mark.parametrize("other", ["torch by version", pytest.param("tensorflow", marks=pytest.mark.deep)])
def test_frameworks_are_checked_to_compute_the_same(store: Store, tmp_path: Path, other: str) -> None:
    """A version that is asked for by name is checked by itself."""
    file = tmp_path / "small.json"
    file.write_text(json.dumps(SMALL))
    once = {"repetitions": 1, "budget": 0.05, "target": 50}
    if other == "torch by version":
        other = f"torch@{find_environment('torch').version.partition('+')[0]}"
    state = performed(planned({"model": str(file), "framework": ["torch", other]}, effort=once), store)
    assert [(status.state, status.why) for status in state.tasks] == [("done", ""), ("done", "")]
    (network,) = {status.task.model for status in state.tasks}
    assert state.sameness == {network: {"torch": True, other: True}}
    kept = store.studies.get("test")
    assert kept is not None
    assert kept.sameness == state.sameness


def test_one_framework_needs_no_check(store: Store) -> None:
    assert performed(planned({"batch": [1, 2]}), store).sameness == {}
