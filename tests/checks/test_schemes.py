"""Every scheme of parallelism trains what one process trains, to the last bits of float64; errors that are planted into
it are noticed, each of them. Two processes, or one pipeline with two microbatches, have the same parts of the batch, so
one reference serves all."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from check_jobs import check_job
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.checks import workers
from deepstone.checks.parallel import TOLERANCE, Trained, is_equivalent, judged, trained_alone, trained_by
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.results.sameness import SchemeSameness
from deepstone.runner.job import Job
from deepstone.runner.team import talking_to_team
from deepstone.setups.axes import Value

PLANTED = Path(__file__).with_name("planted_schemes")
TIMEOUT_S = 280.0


def job_of(environment: Environment | None = None, **axes: Value) -> Job:
    given: dict[str, Value] = {"processes": 2, "batch": 4, "device": "cpu", **axes}
    job = check_job("torch", environment=environment, **given)
    assert job.broken_rule is None
    return workers.check_job(job, batch=job.batch, phase="train", precision="fp64")


@pytest.fixture(scope="module")
def alone() -> Trained:
    """Two parts, with as many samples each."""
    return trained_alone(job_of(), TIMEOUT_S)[0]


class Case(NamedTuple):
    """`errors`: those that are planted into the scheme one after the other. `others`: axes that are tried beside it in
    the same processes."""

    axes: dict[str, Value]
    errors: tuple[str, ...]
    others: tuple[dict[str, Value], ...] = ()


PIPELINE = ("sum", "microbatch twice", "no gradient across a cut", "dropped", "momentum on one rank", "stale")
CASES = {
    "pipeline": Case(
        {"scheme": "pipeline", "schedule": "gpipe", "microbatches": 2},
        PIPELINE,
        (
            {"schedule": "1f1b"},
            {"schedule": "interleaved"},
            {"schedule": "gpipe", "microbatches": 1, "accumulate": 2},  # layers split, and no pipeline
        ),
    ),
    "hybrid": Case(
        {"scheme": "hybrid", "processes": 4, "pipeline": 2, "schedule": "gpipe", "microbatches": 1},
        ("sum", "shard twice", "pipelines apart", "momentum on one rank"),
    ),
    "server": Case(
        {"scheme": "server", "servers": 2}, ("sum", "shard twice", "dropped", "momentum on one rank", "stale")
    ),
    "sharded": Case({"scheme": "sharded"}, ("sum", "shard twice", "dropped", "momentum on one rank", "stale")),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.deep] if name == "hybrid" else []) for name in CASES]
)
def test_a_scheme_trains_what_one_process_trains_and_errors_in_it_are_noticed(
    alone: Trained, name: str, tmp_path: Path
):
    """With batch norm and skip connections; gradients, updates with momentum, losses."""
    case, planted = CASES[name], tmp_path / "planted"
    planted.write_text("")
    variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": str(planted)}
    job = job_of(replace(find_environment("torch"), variables=variables), **case.axes)
    with talking_to_team(job, timeout_s=TIMEOUT_S) as team:
        team.hello()
        right = [
            judged(alone, trained_by(team, alone, **other), equivalent=is_equivalent(job))
            for other in ({}, *case.others)
        ]
        wrong: dict[str, SchemeSameness] = {}
        for error in case.errors:
            planted.write_text(error)
            wrong[error] = judged(alone, trained_by(team, alone), equivalent=is_equivalent(job))
    for found in right:
        assert found.ok, found.why_not()
        for distance in (found.gradient, found.update):
            assert not isinstance(distance, Absent)
            assert distance.relative_error <= TOLERANCE / 10
        assert found.loss == pytest.approx(found.loss_of_one_process, rel=1e-12)
    noticed = {error: found.is_wrong and "off by" in found.why_not() for error, found in wrong.items()}
    assert noticed == dict.fromkeys(case.errors, True)
