"""Errors that ports really make, planted into the real torch lowering: each is caught, at the layer where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_jobs import PLANTED, check_job
from msgspec.structs import replace

from deepstone.checks.as_measured import SEEDS
from deepstone.checks.comparable import comparable
from deepstone.checks.verify import verify
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.results.sameness import Distance

TIMEOUT_S = 1800.0

# The error, the layer nearest to the input that it spoils, and whether it shows in evaluation.
ERRORS = {
    "padding": "conv1",
    "lrn scale": "norm1",
    "epsilon": "norm2",
    "flatten order": "flatten",
    "dropped bias": "conv1",
}
every_error = pytest.mark.parametrize("error", ERRORS)


def planted(error: str) -> Environment:
    environment = find_environment("torch")
    variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": error}
    return replace(environment, variables=variables, lock={**environment.lock, "planted": error})


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path))


@pytest.mark.parametrize("phase", ["forward", "train"])
@every_error  # varies last, so that a worker with the error serves both phases
def test_the_layer_check_names_the_layer(error: str, phase: str):
    jobs = {
        "right": check_job("torch", phase=phase),
        "wrong": check_job("torch", phase=phase, environment=planted(error)),
    }
    checks = comparable(jobs, timeout_s=TIMEOUT_S)
    assert checks["right"].ok
    assert isinstance(checks["right"].whole_step, Distance)
    assert not checks["wrong"].ok
    wrong = checks["wrong"]
    assert not wrong.failure
    assert isinstance(wrong.first_disagreement, Distance)
    assert wrong.first_disagreement.layer == ERRORS[error]
    assert wrong.checked == checks["right"].checked


def test_a_comparison_looks_at_a_whole_step_too():
    """Every layer alone is right, and the network is not; also when it is asked a second time."""
    jobs = {"right": check_job("torch"), "wrong": check_job("torch", environment=planted("whole"))}
    for _ in ("done", "kept"):
        checks = comparable(jobs, timeout_s=TIMEOUT_S)
        assert checks["right"].ok
        assert checks["wrong"].layers_agree
        assert not checks["wrong"].ok
        assert checks["wrong"].seeds == SEEDS
        assert "not the whole step" in checks["wrong"].why_not()


def test_a_comparison_forgives_what_one_seed_alone_shows():
    found = comparable({"it": check_job("torch", environment=planted("seed 0"))}, timeout_s=TIMEOUT_S)["it"]
    assert found.ok, found.why_not()
    assert found.seeds == 2


def test_the_whole_step_in_float64_would_have_told_too():
    """Each check by itself: here every layer is right alone, but two of them have changed places in the network."""
    job = check_job("torch", environment=planted("epsilon"))
    found = verify({"wrong": job}, yardstick=check_job("torch"), timeout_s=TIMEOUT_S).frameworks["wrong"]
    assert isinstance(found.float64, list)
    gradients, losses = found.float64
    assert not gradients.ok
    assert not losses.ok
    assert found.layers is not None
    assert not found.layers.ok
    assert not found.ok
    assert "norm2" in found.why_not


def test_what_one_seed_alone_shows_is_told_and_not_held_against_it():
    """As a rounding that turns a choice does: every layer agrees, float64 agrees, and so do other seeds."""
    job = check_job("torch", environment=planted("seed 0"))
    found = verify({"torch": job}, yardstick=check_job("torch"), timeout_s=TIMEOUT_S).frameworks["torch"]
    assert found.ok, found.why_not
    before, after = found.to_json()["seeds"]
    assert before["relative_error"] > before["tolerance"]
    assert after["relative_error"] <= after["tolerance"]


def test_what_every_seed_shows_is_an_error():
    job = check_job("torch", environment=planted("whole"))
    found = verify({"torch": job}, yardstick=check_job("torch"), timeout_s=TIMEOUT_S).frameworks["torch"]
    assert found.layers is not None
    assert found.layers.ok
    assert not found.ok
    assert len(found.seeds) == SEEDS
    assert "off by" in found.why_not


@pytest.mark.deep
def test_one_that_never_answers_does_not_use_up_the_time_of_others(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(3600)\n")
    stuck = replace(find_environment("torch"), variables={"PYTHONPATH": str(tmp_path)})
    jobs = {"right": check_job("torch"), "stuck": check_job("torch", environment=stuck)}
    found = verify(jobs, yardstick=None, timeout_s=15.0).frameworks
    assert found["stuck"].failure.startswith("timeout")
    assert not found["right"].failure
