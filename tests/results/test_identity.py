"""Jobs are named by what they are, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from factory import make_draft, sha, typed_draft, typed_record
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepstone.environments.environment import Environment
from deepstone.models.load import load_in_process
from deepstone.results.findings import Finding
from deepstone.results.identity import (
    RUN_PATTERN,
    canonical_identity,
    canonical_job,
    canonical_json,
    canonical_task,
    job_id,
    run_id,
    task_id,
    without_defaults,
)
from deepstone.runner.job import Job, Machine
from deepstone.setups.axes import AXES, Value
from deepstone.setups.request import complete

JSON = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_canonical_json_loses_nothing(value: object):
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_count(items: dict[str, int]):
    assert canonical_json(items) == canonical_json(dict(reversed(items.items())))


def test_canonical_json_is_compact_ascii():
    assert canonical_json({"b": "µ", "a": [1, 0.5]}) == r'{"a":[1,0.5],"b":"\u00b5"}'


def test_canonical_json_refuses_what_json_has_not():
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_a_job_is_the_sha_of_its_identity():
    draft = typed_draft()
    expected = hashlib.sha256(canonical_json(draft.identity.to_json()).encode()).hexdigest()
    assert draft.job == job_id(draft.identity) == expected


def test_each_part_of_the_identity_makes_another_job():
    jobs = {
        make_draft()["job"],
        make_draft(model="vgg16")["job"],
        make_draft(batch=16)["job"],
        make_draft(phase="forward")["job"],
        make_draft(repetition=2)["job"],
        make_draft(requested={"framework": "torch"})["job"],
    }
    assert len(jobs) == 6


def test_a_run_is_a_job_and_an_attempt():
    run = run_id("ab" * 32, 12)
    assert run == "abababababababababab-12"
    assert RUN_PATTERN.fullmatch(run)


def fake_job(**given: Value) -> Job:
    return Job(
        model=load_in_process("cifarnet"),
        request=complete({"framework": "fake", **given}),
        environment=Environment(framework="fake", version="1", program=Path("python"), lock={"fake": "1"}),
        machine=Machine(description={"gpus": []}, sha=sha("machine")),
        command=("deepstone", "run", "cifarnet"),
    )


GOLDEN = [
    ({}, "7fbc30f6d013e854ec37bcd38aa2708c11d0343f08b337c9cbcf36f50e104912"),
    ({"batch": 8}, "6abd06d6b7ae94fa73472f6e510b347c276e2e168b6e28e9f6c82e918c0c3663"),
    ({"batch": 32, "seed": 0, "layout": "auto"}, "7fbc30f6d013e854ec37bcd38aa2708c11d0343f08b337c9cbcf36f50e104912"),
    (
        {"layout": "nhwc", "phase": "forward", "input": "host"},
        "41024bb8bb7020d81325399810f4a3ba1ae4a734b44ef929f02bb14ac2bc52fd",
    ),
]


@pytest.mark.parametrize(("given", "job"), GOLDEN)
def test_a_new_axis_renames_no_job(given: dict[str, Value], job: str, monkeypatch: pytest.MonkeyPatch):
    assert fake_job(**given).id == job
    monkeypatch.setitem(AXES, "scheme", dataclasses.replace(AXES["layout"], name="scheme", default="data"))
    assert fake_job(**given).request["scheme"] == "data"
    assert fake_job(**given).id == job
    assert fake_job(**given, scheme="model").id != job


def test_two_mpi_libraries_make_two_jobs():
    job = fake_job(processes=2, launcher="mpirun", transport="mpi")
    named = [replace(job, mpi=library) for library in ("Open MPI v5.0.11", "MPICH Version: 5.0.2")]
    assert len({each.id for each in (job, *named)}) == 3
    assert "mpi" not in job.identity.to_json()
    # as jobs were named before the library was a part of their identity
    assert job.id == "be38e3818a82e714232a1036df4e5f8c9f573d4ab37342c497a3f36287af3ba5"


def test_an_axis_at_its_default_makes_no_other_job():
    assert fake_job(batch=32).id == fake_job().id != fake_job(batch=33).id


def test_a_record_that_names_every_axis_is_of_the_same_job():
    job = fake_job(layout="nhwc")
    early = replace(job.identity, requested=dict(job.request))
    record = typed_record(requested=dict(job.request))
    assert canonical_identity(early) == job.identity
    assert job_id(early) != job.id == job_id(canonical_identity(early))
    assert canonical_job(record) == canonical_job(typed_record(requested=without_defaults(job.request)))
    for method in ("", "both", "isolated"):
        finding = Finding(schema=1, kind="layers", task=task_id("layers", early, method), identity=early)
        assert canonical_task(finding) == task_id("layers", job.identity, method)


def test_a_finding_that_does_not_tell_its_job_keeps_its_name():
    assert canonical_task(Finding(schema=1, kind="peaks", task=sha("task"))) == sha("task")
