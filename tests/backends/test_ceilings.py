"""Every framework's programs for ceilings, in a real worker: they run, and do as much work as they say."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from statistics import median

import pytest
from frameworks import environment_of
from shared_workers import shared_worker
from tiny_jobs import tiny_job

from deepstone.runner.ceilings import PRECISIONS
from deepstone.runner.conversation import Conversation, JobFailed

FRAMEWORKS = ("torch", "tensorflow", "jax")

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


@dataclass(kw_only=True)
class Life:
    """The median of a few runs of each program, and why one was refused."""

    product_s: dict[tuple[str, int], float] = field(default_factory=dict)
    copy_s: dict[int, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)


@functools.cache
def life_of(framework: str) -> Life:
    job = tiny_job(framework, environment=environment_of(framework), device="cpu", threads=1)
    life = Life()
    with shared_worker(job, timeout_s=1800) as talk:
        talk.hello()
        talk.prepare()
        for precision in PRECISIONS["cpu"]:
            for size in (32, 512):
                talk.ceiling(kind="product", precision=precision, size=size)
                life.product_s[precision, size] = median(talk.isolated_block("product", samples=7, lead=2).step_s)
        for size in (2**16, 2**26):
            talk.ceiling(kind="copy", bytes=size)
            life.copy_s[size] = median(talk.isolated_block("copy", samples=7, lead=2).step_s)
        life.refused["link"] = _refusal(talk, kind="link", peer=1, bytes=1024)
        life.refused["unheard-of"] = _refusal(talk, kind="unheard-of", bytes=1024)
        life.losses = talk.losses(1)
    return life


def _refusal(talk: Conversation, **wanted: str | int) -> str:
    with pytest.raises(JobFailed) as failed:
        talk.ceiling(**wanted)
    assert failed.value.outcome == "unsupported"
    return failed.value.reason


@every_framework
@pytest.mark.parametrize("precision", PRECISIONS["cpu"])
def test_a_product_4096_times_as_large_takes_longer(framework: str, precision: str):
    times = life_of(framework).product_s
    assert times[precision, 512] > 5 * times[precision, 32] > 0


@every_framework
def test_a_copy_1024_times_as_large_takes_longer(framework: str):
    times = life_of(framework).copy_s
    assert times[2**26] > 20 * times[2**16] > 0


@every_framework
def test_what_is_not_there_is_refused_and_the_worker_goes_on(framework: str):
    life = life_of(framework)
    assert "unheard-of" in life.refused["unheard-of"]
    assert life.refused["link"]
    assert len(life.losses) == 1
