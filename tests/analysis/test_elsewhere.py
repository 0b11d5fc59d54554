"""Runs of planned jobs among records of other machines."""

from __future__ import annotations

from factory import sha, typed_record
from msgspec import structs

from deepstone.analysis.elsewhere import runs_elsewhere
from deepstone.results.record import Record


def on(machine: str, record: Record) -> Record:
    return structs.replace(record, identity=structs.replace(record.identity, machine_sha=sha(machine)))


def test_a_run_of_another_machine_with_the_same_setup_is_found():
    small, large = typed_record(batch=8), typed_record(batch=16)
    jobs = {"small": small.identity, "large": large.identity}
    found = runs_elsewhere(jobs, [on("there", small), on("there", large), on("there", typed_record(batch=32))])
    assert {job: record.workload.batch for job, record in found.items()} == {"small": 8, "large": 16}


def test_runs_of_two_machines_are_never_mixed():
    small, large = typed_record(batch=8), typed_record(batch=16)
    jobs = {"small": small.identity, "large": large.identity}
    found = runs_elsewhere(jobs, [on("one", small), on("other", small), on("other", large)])
    assert {record.identity.machine_sha for record in found.values()} == {sha("other")}
    assert len(found) == 2


def test_another_round_and_a_failed_run_do_not_count():
    record = typed_record()
    later, failed = typed_record(repetition=2), typed_record(outcome="crashed")
    assert runs_elsewhere({"job": record.identity}, [on("there", later), on("there", failed)]) == {}
