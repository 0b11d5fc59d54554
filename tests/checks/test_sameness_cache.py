"""Layer checks are kept, by everything they depend on, and by nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from check_jobs import check_job
from msgspec.structs import replace

from deepstone.checks import comparable as cache
from deepstone.checks import workers
from deepstone.graph.builder import Builder
from deepstone.results.sameness import Comparable
from deepstone.runner.job import Job

TIMEOUT_S = 1800.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path))
    return tmp_path / "sameness"


def check(job: Job) -> Comparable:
    return cache.comparable({"it": job}, timeout_s=TIMEOUT_S)["it"]


@pytest.fixture
def no_worker(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """From here on only what is cached can be had: no worker starts."""

    def refuse(job: Job, *, timeout_s: float) -> NoReturn:
        raise AssertionError("a worker was started")

    def stop() -> None:
        monkeypatch.setattr(workers, "talking_to_worker", refuse)

    return stop


def test_a_check_is_done_once(no_worker):
    first = check(check_job("torch"))
    assert first.ok
    no_worker()
    again = check(check_job("torch"))
    assert again.to_json() == first.to_json()


@pytest.mark.parametrize("axes", [{"batch": 64}, {"seed": 7}, {"phase": "gradient"}, {"threads": 2}, {"dropout": "on"}])
def test_what_does_not_change_what_is_computed_does_not_matter(no_worker, axes: dict):
    check(check_job("torch"))
    no_worker()
    assert check(check_job("torch", **axes)).ok


@pytest.mark.parametrize("axes", [{"layout": "nhwc"}, {"engine": "native"}, {"precision": "fp64"}])
def test_another_setup_is_another_check(folder: Path, axes: dict):
    check(check_job("torch"))
    check(check_job("torch", **axes))
    assert len(list(folder.glob("*.json"))) == 2


@pytest.mark.parametrize("axes", [{"processes": 2, "transport": "gloo"}, {"accumulate": 2}], ids=str)
def test_several_processes_share_the_check_of_one(axes: dict):
    """Whether they train as one does is checked apart."""
    one, several = (cache._checked_as(check_job("torch", **each, batch=4)) for each in ({}, axes))
    assert several.broken_rule is None
    assert cache._key(several) == cache._key(one)


def test_another_network_another_version_and_other_code_are_other_checks(monkeypatch: pytest.MonkeyPatch):
    b = Builder("other")
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", b.input("data", (1, 2, 2))), features=3))
    job = check_job("torch")
    newer = replace(job, environment=replace(job.environment, lock={**job.environment.lock, "torch": "99"}))
    keys = {cache._key(job), cache._key(check_job("torch", graph=b.build())), cache._key(newer)}
    assert len(keys) == 3
    monkeypatch.setattr(cache, "_code", lambda _job: "changed")
    assert cache._key(job) not in keys


@pytest.mark.parametrize("module", ["wire_graph.py", "xla/program.py", "legacy/torch1.py", "torch/lower.py"])
def test_what_a_backend_uses_is_code_of_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str):
    shared = tmp_path / "backends" / module
    shared.parent.mkdir(parents=True)
    shared.write_text("before = 1\n")
    monkeypatch.setattr(cache.deepstone, "__file__", str(tmp_path / "__init__.py"))
    before = cache._key(check_job("torch"))
    shared.write_text("after = 1\n")
    assert cache._key(check_job("torch")) != before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"precision": 1}', b"\xff\xfe"])
def test_a_spoiled_file_is_done_again(folder: Path, content: bytes):
    first = check(check_job("torch"))
    (kept,) = folder.glob("*.json")
    kept.write_bytes(content)
    assert check(check_job("torch")).to_json() == first.to_json()
    assert kept.read_bytes() != content


def test_a_folder_that_cannot_be_written_is_done_without(folder: Path):
    check(check_job("torch"))  # the weights are kept as well, and without them nothing runs
    for path in folder.glob("*.json"):
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    assert check(check_job("torch")).ok


def test_a_failure_is_not_kept(folder: Path):
    failed = check(check_job("torch", engine="xla"))
    assert not failed.ok
    assert "unsupported" in failed.failure
    assert not list(folder.glob("*.json"))


def test_a_variable_that_changes_what_a_framework_does_is_another_check(monkeypatch: pytest.MonkeyPatch):
    before = cache._key(check_job("torch"))
    monkeypatch.setenv("DEEPSTONE_STORE", "elsewhere")
    assert cache._key(check_job("torch")) == before
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    assert cache._key(check_job("torch")) != before
