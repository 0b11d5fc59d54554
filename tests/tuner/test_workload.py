"""What a look at a setup says of its memory: all processes of a node share the host, and each has a GPU of its own."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.errors import UsageError
from deepstone.results.parallel import Parallel
from deepstone.results.record import Draft
from deepstone.runner.rank_memory import planned_bytes
from deepstone.tuner.workload import Workload, peak_bytes

PLAIN = ("cifarnet", ("framework=fake", "batch=32", "threads=1", "affinity=auto", "layout=auto,nhwc"))


@pytest.fixture(scope="module")
def of_two_processes() -> tuple[Workload, Draft]:
    workload = Workload.of(PLAIN[0], (*PLAIN[1], "processes=2"))
    return workload, workload.look(workload.space.default, timed_s=0.1, timeout_s=60.0).draft


def test_memory_of_the_host_is_that_of_all_processes_of_a_node(of_two_processes: tuple[Workload, Draft]) -> None:
    _, draft = of_two_processes
    assert isinstance(draft.parallel, Parallel)
    ranks = draft.parallel.ranks
    peaks = [rank.host_peak_bytes for rank in ranks if isinstance(rank.host_peak_bytes, int)]
    assert len(peaks) == 2
    assert peak_bytes(draft) == sum(peaks)
    apart = replace(draft, parallel=replace(draft.parallel, ranks=[ranks[0], replace(ranks[1], node=1)]))
    assert peak_bytes(apart) == max(peaks)


@pytest.mark.parametrize("reserved", [20 * 2**30, Absent("TensorFlow does not say how much it has reserved")])
def test_memory_of_gpus_is_what_every_framework_tells(
    of_two_processes: tuple[Workload, Draft], reserved: int | Absent
) -> None:
    """JAX reserves its pool in powers of two, and TensorFlow does not tell what it reserves."""
    draft = _on_gpu(of_two_processes[1], device_allocated_bytes=2**30, device_reserved_bytes=reserved)
    assert peak_bytes(draft) == 2**30


def test_memory_of_the_host_is_never_that_of_a_gpu(of_two_processes: tuple[Workload, Draft]) -> None:
    why = Absent("this JAX does not report it")
    assert peak_bytes(_on_gpu(of_two_processes[1], device_allocated_bytes=why, device_reserved_bytes=why)) == why


def _on_gpu(draft: Draft, **memory: int | Absent) -> Draft:
    assert isinstance(draft.memory, dict)
    effects = {**draft.setup.effective, "device": replace(draft.setup.effective["device"], value="gpu:0")}
    return replace(draft, memory={**draft.memory, **memory}, setup=replace(draft.setup, effects=effects))


def test_a_look_has_the_analytic_need_of_one_of_its_processes(of_two_processes: tuple[Workload, Draft]) -> None:
    workload, draft = of_two_processes
    assert isinstance(draft.memory, dict)
    assert draft.memory["analytic_bytes"] == planned_bytes(workload.job(workload.space.default))[0]


def test_setups_whose_processes_do_not_fit_together_are_excluded() -> None:
    words = (*PLAIN[1], "processes=auto,2", "accumulate=1", "precision=fp32", "optimizer=momentum", "checkpointing=off")
    space = Workload.of(PLAIN[0], words).space
    one, two = (_need(processes) for processes in (1, 2))
    assert one < two
    limited = Workload.of(PLAIN[0], words, limit_bytes=int(1.5 * (one + two) / 2)).space
    assert {space.value(point, "processes") for point in space.points} == {"auto", 2}
    assert {limited.value(point, "processes") for point in limited.points} == {"auto"}


@pytest.mark.parametrize(
    ("processes", "batch", "batches"),
    [
        ("processes=2", "batch=8/process,16/process", [16, 32]),
        ("processes=2", "batch=16/process,8", [32, 8]),
        ("processes=auto", "batch=8/process", [8]),
    ],
)
def test_the_batch_of_each_process_is_searched_as_that_of_the_job(
    processes: str, batch: str, batches: list[int]
) -> None:
    space = Workload.of(PLAIN[0], ("framework=fake", "threads=1", "layout=auto,nhwc", processes, batch)).space
    assert {space.value(point, "batch") for point in space.points} == set(batches)
    assert space.value(space.default, "batch") == batches[0]
    for point in space.points:
        assert space.point_of(space.given(point)) == point


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("processes=1,2", "batch=8/process"), "searches over processes too"),
        (("processes=1..4", "batch=8/process,16/process"), "searches over processes too"),
        (("batch=8/process",), "searches over processes too"),
        (("processes=2", "batch=8/process,16"), "listed twice"),
    ],
)
def test_a_batch_that_changes_with_the_processes_is_refused(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Workload.of(PLAIN[0], ("framework=fake", "threads=1", *words))


def test_narrow_numbers_without_instructions_are_looked_at_only_if_asked_for() -> None:
    words = (*PLAIN[1], "precision=fp32,bf16-mixed")
    free = Workload.of(PLAIN[0], tuple(word for word in words if not word.startswith("engine="))).space
    slow = [point for point in free.points if {free.value(point, "isa"), free.value(point, "engine")} != {"auto"}]
    assert slow
    assert {free.value(point, "precision") for point in slow} == {"fp32"}
    for value in ("isa=avx2", "engine=native"):
        asked = Workload.of(PLAIN[0], (*words, value)).space
        assert {asked.value(point, "precision") for point in asked.points} == {"fp32", "bf16-mixed"}


def test_a_look_at_steps_that_are_far_too_slow_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload.of(*PLAIN)
    monkeypatch.setenv(FAKE_SCRIPT, json.dumps({"step_s": 0.3, "warmup": [], "sleep": True}))
    found = workload.look(workload.space.default, timed_s=3.0, timeout_s=60.0, slowest_step_s=0.1)
    assert (found.outcome, found.is_too_slow, found.samples_per_s) == ("timeout", True, None)
    slow = workload.look(workload.space.default, timed_s=0.5, timeout_s=60.0, slowest_step_s=1.0)
    assert (slow.outcome, slow.is_too_slow) == ("ok", False)


def _need(processes: int) -> int:
    """Of all processes together."""
    workload = Workload.of(PLAIN[0], (*PLAIN[1], f"processes={processes}"))
    job = workload.job(workload.space.default)
    needs = planned_bytes(job) if processes > 1 else [job.need_bytes]
    return sum(need for need in needs if isinstance(need, int))
