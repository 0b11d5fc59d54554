"""Two real processes train what one trains, to the last bits of float64; errors that are planted into the exchange are
noticed, each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_jobs import check_job
from msgspec.structs import replace
from scheme_checks import assert_as_one_process

from deepstone.checks.parallel import FP32_TOLERANCE, Compared, Trained, check_scheme, judged, with_fp32
from deepstone.cli.verify_schemes import exit_code, schemes_json
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.results.sameness import GlobalStatistics, SchemeInFp32, SchemeSameness
from deepstone.setups.axes import Value

PLANTED = Path(__file__).with_name("planted_exchange")
TIMEOUT_S = 280.0


def checked(environment: Environment | None = None, *, beside: bool = False, **axes: Value) -> SchemeSameness:
    job = check_job("torch", environment=environment, **{"processes": 2, "batch": 4, "device": "cpu", **axes})
    return check_scheme(job, timeout_s=TIMEOUT_S, beside=beside)


def with_planted(error: str) -> Environment:
    variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": error}
    return replace(find_environment("torch"), variables=variables)


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
    """With batch norm and dropout layers; gradients, updates with momentum, losses. In fp32 beside it; and batch norm
    with statistics of each part is another training than with those of the whole batch."""
    found = checked(beside=True, **axes)
    assert_as_one_process(found)
    assert len(found.loss) == 3
    assert isinstance(found.fp32, SchemeInFp32)
    assert found.fp32.ok
    assert found.fp32.gradient.relative_error < FP32_TOLERANCE / 10
    assert isinstance(found.global_statistics, GlobalStatistics)
    assert found.global_statistics.gradient.relative_error > 1e-3


@pytest.mark.parametrize(
    "error",
    [
        "sum",
        "momentum on one rank",
        *(pytest.param(error, marks=pytest.mark.deep) for error in ("shard twice", "dropped", "stale")),
    ],
)
def test_an_error_in_the_exchange_is_noticed(error: str):
    found = checked(with_planted(error), overlap="off")
    assert not found.failure
    assert not found.ok
    assert found.is_wrong
    assert "off by" in found.why_not()


@pytest.mark.parametrize(
    "axes",
    [
        {"compression": "onebit"},
        pytest.param({"compression": "powersgd", "overlap": "off"}, marks=pytest.mark.deep),
        pytest.param({"compression": "powersgd", "overlap": "on"}, marks=pytest.mark.deep),
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


def test_a_scheme_that_crashes_is_told_with_its_reason():
    found = checked(with_planted("crash"), overlap="off")
    assert found.is_wrong
    assert "the exchange fails" in found.why_not()
    answer: Any = schemes_json({"data": {"torch": found}})["data"]
    assert answer["ok"] is False


class TestFp32:
    """What fp32 adds to an answer in float64."""

    right = Trained(gradients={"a": np.array([1.0, 2.0])}, updates={"a": np.array([0.1, 0.1])}, losses=[1.0] * 3)

    def with_error(self, gradient: float = 0.0, update: float = 0.0) -> Compared:
        found = self.right
        gradients, updates = {"a": found.gradients["a"] * (1 + gradient)}, {"a": found.updates["a"] * (1 + update)}
        return Trained(gradients=gradients, updates=updates, losses=found.losses).against(found)

    def test_the_first_gradient_is_judged_and_the_update_shown(self):
        found = judged(self.right, [self.with_error(), self.with_error()])
        close = with_fp32(found, self.right, [self.with_error(), self.with_error(1e-6, 0.5)])
        assert close.ok
        assert isinstance(close.fp32, SchemeInFp32)
        assert close.fp32.update.relative_error == pytest.approx(0.5)
        far = with_fp32(found, self.right, [self.with_error(), self.with_error(1e-3, 0.0)])
        assert far.is_wrong
        assert "in fp32: layer a, gradient on rank 1" in far.why_not()


def test_replicas_that_differ_in_the_last_bits_are_not_replicas():
    """Such an error is far below the tolerance, and grows from step to step."""
    right = Trained(gradients={"a": np.ones(2)}, updates={"a": np.array([0.1, -0.0])}, losses=[1.0] * 3)
    same = replace(right, updates={"a": np.array([0.1, 0.0])})
    other = replace(right, updates={"a": np.array([np.nextafter(0.1, 1), 0.0])})
    assert judged(right, [each.against(right) for each in (right, same)]).replicas_equal
    found = judged(right, [each.against(right) for each in (right, other)])
    assert not found.replicas_equal
    assert found.is_wrong


def test_a_framework_without_a_scheme_is_unsupported_and_not_wrong():
    """So that several frameworks can be asked at once; no process starts."""
    environment = replace(find_environment("torch"), framework="jax", version="0.10.2")
    job = check_job("jax", environment=environment, processes=2, batch=4, scheme="pipeline")
    found = check_scheme(job, timeout_s=TIMEOUT_S)
    assert found.is_unsupported
    assert "built for torch alone" in str(found.failure)


class TestAnswer:
    good = judged(TestFp32.right, [TestFp32().with_error(), TestFp32().with_error()])
    broken = SchemeSameness.failed("crashed: rank 1: it fell", equivalent=False)
    missing = SchemeSameness.failed("no launcher", equivalent=True, is_missing=True)

    @pytest.mark.parametrize(
        ("frameworks", "code", "ok"),
        [
            ({"torch": good}, 0, True),
            ({"torch": good, "mxnet": "unsupported: one process only"}, 0, True),
            ({"mxnet": "unsupported: one process only"}, 1, False),
            ({"torch": good, "jax": broken}, 1, False),
            ({"torch": missing}, 4, False),
        ],
    )
    def test_what_fails_it(self, frameworks: dict[str, SchemeSameness | str], code: int, ok: bool):
        assert exit_code({"data": frameworks}) == code
        answer: Any = schemes_json({"data": frameworks})["data"]
        assert answer["ok"] is ok
        assert answer["frameworks"].keys() == frameworks.keys()
        assert ok or answer["failure"]
