"""Two real processes train what one trains, to the last bits of float64; errors that are planted into the exchange are
noticed, each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from check_jobs import check_job

from deepstone.absent import Absent
from deepstone.checks.parallel import TOLERANCE, check_scheme
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.results.sameness import SchemeSameness
from deepstone.setups.axes import Value

PLANTED = Path(__file__).with_name("planted_exchange")
TIMEOUT_S = 280.0


def checked(environment: Environment | None = None, **axes: Value) -> SchemeSameness:
    job = check_job("torch", environment=environment, **{"processes": 2, "batch": 4, "device": "cpu", **axes})
    return check_scheme(job, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    "axes",
    [
        pytest.param({}, marks=pytest.mark.deep),  # tests/cli/test_cli_parallel.py has it
        pytest.param({"overlap": "off"}, marks=pytest.mark.deep),
        pytest.param({"overlap": "off", "collective": "reduce-broadcast"}, marks=pytest.mark.deep),
        {"accumulate": 2, "bucket": 1},
        pytest.param({"processes": 4}, marks=pytest.mark.deep),
    ],
    ids=str,
)
def test_several_processes_train_what_one_trains(axes: dict[str, Value]):
    """With batch norm and dropout layers; gradients, updates with momentum, losses."""
    found = checked(**axes)
    assert found.ok, found.why_not()
    assert found.replicas_equal
    for distance in (found.gradient, found.update):
        assert not isinstance(distance, Absent)
        assert distance.relative_error <= TOLERANCE / 10
    assert found.loss == pytest.approx(found.loss_of_one_process, rel=1e-12)
    assert len(found.loss) == 3


@pytest.mark.parametrize(
    "error",
    [
        "sum",
        "momentum on one rank",
        *(pytest.param(error, marks=pytest.mark.deep) for error in ("shard twice", "dropped", "stale")),
    ],
)
def test_an_error_in_the_exchange_is_noticed(error: str):
    environment = find_environment("torch")
    variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": error}
    found = checked(replace(environment, variables=variables), overlap="off")
    assert not found.failure
    assert not found.ok
    assert found.is_wrong
    assert "off by" in found.why_not()


@pytest.mark.parametrize(
    "axes",
    [
        {"compression": "onebit"},
        pytest.param({"compression": "powersgd", "overlap": "off"}, marks=pytest.mark.deep),
    ],
    ids=str,
)
def test_compressed_gradients_are_never_called_the_same(axes: dict[str, Value]):
    found = checked(**axes)
    assert not found.failure
    assert (found.ok, found.equivalent, found.is_wrong) == (False, False, False)
    assert found.replicas_equal


def test_what_cannot_run_is_told():
    found = checked(batch=3)
    assert found.is_wrong
    assert "batch must be a multiple" in found.why_not()
