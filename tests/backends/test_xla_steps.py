"""Events of a profile become kernels, and kernels steps."""

from __future__ import annotations

from typing import Any

import pytest

from deepstone.backends.owners import Owner, step_account
from deepstone.backends.xla.profile import Kernel, Traced, kernels_of_xla, step_windows
from deepstone.backends.xla.steps import TracedSteps
from deepstone.trace.timeline import Span


def traced(name: str, start_s: float, end_s: float, *, plane: str = "/host:CPU", line: str = "pool", **stats: Any):
    return Traced(plane=plane, line=line, name=name, start_s=start_s, end_s=end_s, stats=stats)


def kernel(start_s: float, end_s: float, run: int | None = None) -> Kernel:
    return Kernel(
        number=0, name="k", instruction="k", run=run, kind="kernel", thread="one", start_s=start_s, end_s=end_s
    )


def on_gpu(name: str, start_s: float, end_s: float, **stats: Any) -> Traced:
    return traced(name, start_s, end_s, plane="/device:GPU:0", line="Stream #13(Compute)", **stats)


class TestKernels:
    def test_on_a_cpu_they_are_the_instructions_of_xla(self):
        events = [
            traced("ThunkExecutor::Execute", 0, 9),
            traced("dot.1", 1, 2, hlo_op="dot.1", run_id=-77),
            traced("dot.2", 3, 4, hlo_op="dot.2", run_id=-1),
        ]
        first, second = kernels_of_xla(events)
        assert (first.instruction, first.run, first.start_s, first.end_s) == ("dot.1", -77, 1, 2)
        assert second.run is None

    def test_what_it_hands_to_the_pool_is_its_own_and_the_time_in_the_queue_is_not(self):
        """copy.1 hands over half of itself; the pool comes to it while dot.1 runs, then goes on with add.1."""
        events = [
            traced("ThunkExecutor::Execute", 0, 10),
            traced("copy.1", 1, 2, hlo_op="copy.1"),
            traced("ThreadpoolListener::Record", 1.5, 1.5, _p=7),
            traced("dot.1", 2, 6, hlo_op="dot.1"),
            traced("ThreadpoolListener::StartRegion", 4, 4, line="second", _c=7),
            traced("ThunkExecutor::Execute", 7, 10, line="second"),
            traced("add.1", 8, 9, line="second", hlo_op="add.1"),
            traced("ThreadpoolListener::StopRegion", 10, 10, line="second"),
        ]
        found = [(k.name, k.thread, k.start_s, k.end_s) for k in kernels_of_xla(events)]
        assert sorted(found) == [
            ("add.1", "second", 8, 9),
            ("copy.1", "pool", 1, 2),
            ("copy.1", "second", 4, 7),
            ("dot.1", "pool", 2, 6),
        ]
        copies = {k.number for k in kernels_of_xla(events) if k.name == "copy.1"}
        assert len(copies) == 1

    def test_inside_one_another_the_innermost_counts(self):
        events = [traced("while.1", 0, 10, hlo_op="while.1"), traced("add.1", 2, 5, hlo_op="add.1")]
        found = [(k.name, k.start_s, k.end_s) for k in kernels_of_xla(events)]
        assert found == [("while.1", 0, 2), ("add.1", 2, 5), ("while.1", 5, 10)]

    def test_what_was_handed_over_twice_removed_is_still_its_own(self):
        events = [
            traced("conv.1", 0, 1, hlo_op="conv.1"),
            traced("ThreadpoolListener::Record", 0.5, 0.5, _p=1),
            traced("ThreadpoolListener::StartRegion", 2, 2, line="second", _c=1),
            traced("ThreadpoolListener::Record", 2.5, 2.5, line="second", _p=2),
            traced("ThreadpoolListener::StopRegion", 3, 3, line="second"),
            traced("ThreadpoolListener::StartRegion", 4, 4, line="third", _c=2),
            traced("ThreadpoolListener::StopRegion", 5, 5, line="third"),
            traced("ThreadpoolListener::StartRegion", 6, 6, line="third", _c=99),
            traced("ThreadpoolListener::StopRegion", 7, 7, line="third"),
        ]
        assert [(k.name, k.start_s, k.end_s) for k in kernels_of_xla(events)] == [
            ("conv.1", 0, 1),
            ("conv.1", 2, 3),
            ("conv.1", 4, 5),
        ]

    def test_on_a_gpu_they_are_what_its_streams_ran(self):
        events = [
            traced("cuLaunchKernel", 0, 1, correlation_id=5),
            on_gpu("sm90_gemm", 2, 4, hlo_op="gemm.1", correlation_id=5),
            on_gpu("MemcpyH2D", 4, 5, correlation_id=6),
            traced("gemm.1", 2, 4, plane="/device:GPU:0", line="XLA Ops", hlo_op="gemm.1"),
        ]
        gemm, copy = kernels_of_xla(events)
        assert (gemm.name, gemm.instruction, gemm.kind, gemm.correlation) == ("sm90_gemm", "gemm.1", "kernel", 5)
        assert (copy.instruction, copy.kind) == ("", "copy")


class TestSteps:
    def test_a_step_goes_from_the_end_of_a_run_to_the_end_of_the_next(self):
        kernels = [kernel(0, 1, -5), kernel(1, 2, -5), kernel(2.5, 4, -4), kernel(5, 7, -3), kernel(5, 6, -3)]
        assert step_windows(kernels, 3) == [(2, 4), (4, 7)]

    def test_without_numbers_runs_have_equally_many_kernels(self):
        kernels = [kernel(start, start + 1) for start in (0, 2, 10, 12, 20, 22)]
        assert step_windows(kernels, 3) == [(3, 13), (13, 23)]

    @pytest.mark.parametrize("runs", [2, 4])
    def test_where_neither_helps_there_are_none(self, runs: int):
        assert step_windows([kernel(0, 1), kernel(1, 2), kernel(2, 3)], runs) == []
        assert step_windows([kernel(0, 1, 1), kernel(1, 2, 2), kernel(2, 3, 3)], runs) == []

    def test_every_part_has_its_place(self):
        owners = [
            Owner(part="forward", name="a"),
            Owner(part="backward", name="a"),
            Owner(part="update"),
            Owner(part="data"),
            Owner(part="other", name="copies"),
        ]
        spans = [Span(start_s=n, end_s=n + 1, owners={owner: 1.0}) for n, owner in enumerate(owners)]
        found = step_account(spans, start_s=0, end_s=7, expected=[Owner(part="forward", name="b")])
        assert found.layers == {("a", "forward"): 1, ("a", "backward"): 1, ("b", "forward"): 0}
        assert (found.update_s, found.data_s, found.gaps_s, found.total_s) == (1, 1, 2, 7)
        assert found.other == {"copies": 1}


def steps(events: list[Traced], *, on_cpu: bool) -> TracedSteps:
    """One step of ten seconds, of which what ran on a GPU belongs to the layer `a`."""
    return TracedSteps(
        events=events,
        kernels=kernels_of_xla(events),
        windows=[(0, 10)],
        owners=lambda kernel: {} if on_cpu else {Owner(part="forward", name="a"): 1.0},
        expected=set(),
        on_cpu=on_cpu,
        copying_batch="copy",
    )


class TestSummary:
    def test_on_a_gpu_it_has_calls_and_why_the_device_was_idle(self):
        events = [
            traced("cuLaunchKernel", 0, 1, correlation_id=5),
            traced("cuLaunchKernel", 1, 1.5, correlation_id=6),
            traced("cuMemcpyHtoDAsync_v2", 6, 7, correlation_id=7),
            traced("CudaThing somewhere", 6, 7),
            on_gpu("gemm", 2, 4, hlo_op="gemm.1", correlation_id=5),
            on_gpu("gemm", 4, 5, hlo_op="gemm.1", correlation_id=6),
            on_gpu("MemcpyH2D", 8, 9, correlation_id=7),
        ]
        found = steps(events, on_cpu=False).summary("")
        assert {entry["name"]: (entry["kind"], entry["count"], entry["total_s"]) for entry in found["kernels"]} == {
            "gemm": ("kernel", 2, 3),
            "MemcpyH2D": ("copy", 1, 1),
        }
        assert {entry["name"]: entry["count"] for entry in found["calls"]} == {
            "cuLaunchKernel": 2,
            "cuMemcpyHtoDAsync_v2": 1,
        }
        assert (found["busy_s"], found["span_s"]) == (4, 10)
        assert found["idle"] == {"waiting for the host": 1 + 2 + 1, "between kernels": 1 + 1}

    def test_work_on_several_threads_is_one_kernel_as_long_as_any_was_at_it(self):
        events = [
            traced("conv.1", 0, 4, hlo_op="conv.1"),
            traced("ThreadpoolListener::Record", 1, 1, _p=1),
            traced("ThreadpoolListener::StartRegion", 2, 2, line="second", _c=1),
            traced("ThreadpoolListener::StopRegion", 7, 7, line="second"),
        ]
        found = steps(events, on_cpu=True).summary("")
        assert found["kernels"] == [{"name": "conv.1", "kind": "kernel", "count": 1, "total_s": 7}]
        assert found["busy_s"] == 7
