"""What every framework of today shows of its axes. Each file of a framework's setup has it with a bench of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tiny_jobs import tiny
from workbench import Bench, fits_bf16, observed

from deepstone.backends.base import ADAM_LEARNING_RATE
from deepstone.graph.weights import initial_parameters
from deepstone.runner.conversation import JobFailed, Prepared
from deepstone.setups.axes import AXES, Value
from deepstone.setups.world import BETWEEN_PROCESSES

Refusals = list[tuple[dict[str, Value], str]]  # what no worker prepares, and a part of the reason


def refused(axis: str, reasons: Mapping[Value, str], **beside: Value) -> Refusals:
    """These values of one axis, in a setup that has others beside it."""
    return [({**beside, axis: value}, reason) for value, reason in reasons.items()]


CANNOT_ON_A_CPU: Refusals = [
    *refused("precision", dict.fromkeys(["tf32", "tf32-conv"], "TF32 is a format of GPU matrix units")),
    *refused("engine", {"cudnn": "engine cudnn runs on a GPU only", "mkl": "engine mkl is Neon's"}),
    *refused("algorithm", dict.fromkeys(["benchmark", "benchmark-all"], "a CPU engine has no such mode")),
    ({"input": "pinned"}, "page-locked memory serves copies to a GPU"),
    ({"phase": "forward", "checkpointing": "on"}, "checkpointing saves memory in backward"),
    ({"phase": "forward", "input_grad": "on"}, "input_grad needs a backward pass"),
    ({"compile": "default", "checkpointing": "on"}, "choose one"),
]


class SetupSuite:
    CHECKPOINTED: ClassVar[str] = "gradients"  # which arrays are compared, beside buffers
    CHECKPOINTED_AXES: ClassVar[dict[str, Value]] = {}
    WIDE: ClassVar[str] = "fp32"
    NARROW: ClassVar[dict[str, float]] = {"bf16-mixed": 0.02, "bf16": 0.02}  # how near they stay to the wide one

    @pytest.mark.parametrize("layout", ["nchw", "nhwc"])
    def test_layout(self, bench: Bench, layout: str):
        assert observed(bench.prepare(layout=layout), "layout") == layout

    def test_layout_changes_no_loss(self, bench: Bench):
        assert bench.losses(layout="nhwc") == pytest.approx(bench.losses(layout="nchw"), rel=1e-4)

    def test_narrow_numbers_stay_near_the_wide_ones(self, bench: Bench):
        wide = bench.losses(precision=self.WIDE)
        for precision, tolerance in self.NARROW.items():
            narrow = bench.losses(precision=precision)
            assert narrow == pytest.approx(wide, rel=tolerance), precision
            assert narrow != wide, precision

    def test_bf16_narrows_the_weights_and_mixed_does_not(self, bench: Bench):
        bench.prepare(precision="bf16")
        assert fits_bf16(bench.arrays("parameters")["conv1/weight"])
        bench.prepare(precision="bf16-mixed")
        assert not fits_bf16(bench.arrays("parameters")["conv1/weight"])

    def test_optimizers_differ_as_they_should(self, bench: Bench):
        steps = 8
        momentum = bench.losses(steps, optimizer="momentum")
        sgd, adam = bench.losses(steps, optimizer="sgd"), bench.losses(steps, optimizer="adam")
        assert sgd[:2] == pytest.approx(momentum[:2], rel=1e-5)  # the first update has nothing to remember
        assert sgd[-1] > momentum[-1] * (1 + 1e-4)
        assert adam[0] == pytest.approx(momentum[0], rel=1e-5)
        assert abs(adam[1] - momentum[1]) > 1e-4 * momentum[1]

    def test_adam_moves_every_weight_by_its_learning_rate(self, bench: Bench):
        bench.prepare(optimizer="adam")
        before = initial_parameters(tiny(), 0)["dense"]["weight"]
        moved = np.abs(bench.arrays("parameters")["dense/weight"] - before)
        assert np.median(moved) == pytest.approx(ADAM_LEARNING_RATE, rel=0.01)

    def test_dropout_drops_and_its_seed_fixes_what(self, bench: Bench):
        off, on = bench.losses(dropout="off"), bench.losses(dropout="on")
        assert all(abs(a - b) > 1e-4 for a, b in zip(off, on, strict=True))
        assert bench.losses(dropout="on") == pytest.approx(on, rel=1e-5)
        assert abs(bench.losses(dropout="on", seed=1)[0] - on[0]) > 1e-4

    def test_checkpointing_changes_no_number(self, bench: Bench):
        def trained(checkpointing: str) -> tuple[list[float], dict[str, np.ndarray], dict[str, np.ndarray]]:
            losses = bench.losses(checkpointing=checkpointing, **self.CHECKPOINTED_AXES)
            return losses, bench.arrays(self.CHECKPOINTED), bench.arrays("buffers")

        plain, again = trained("off"), trained("on")
        assert again[0] == pytest.approx(plain[0], rel=1e-5)
        for before, after in zip(plain[1:], again[1:], strict=True):
            assert set(before) == set(after) != set()
            for name in before:
                np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-6, err_msg=name)

    def test_input_from_host_memory_changes_no_loss(self, bench: Bench):
        assert bench.losses(input="host") == pytest.approx(bench.losses(), rel=1e-5)

    def test_forward_is_evaluation(self, bench: Bench):
        """Batch norm uses what it has learnt, which is nothing yet, and learns nothing."""
        losses = bench.losses(phase="forward")
        assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-6)
        assert abs(losses[0] - bench.losses()[0]) > 1e-4
        bench.prepare(phase="forward")
        assert np.all(bench.arrays("buffers")["norm/running_mean"] == 0)
        assert bench.arrays("gradients") == {}


class LegacySetupSuite:
    """What a framework shows of its axes where its own tests are few."""

    def test_input_from_host_memory_changes_no_loss(self, bench: Bench):
        assert bench.losses(input="host") == pytest.approx(bench.losses(), rel=1e-5)

    def test_a_gradient_of_the_input_changes_no_loss(self, bench: Bench):
        assert bench.losses(input_grad="on") == pytest.approx(bench.losses(), rel=1e-5)

    def test_dropout_drops_and_its_seed_fixes_what(self, bench: Bench):
        off, on = bench.losses(dropout="off"), bench.losses(dropout="on")
        assert abs(off[0] - on[0]) > 1e-4
        assert bench.losses(dropout="on") == pytest.approx(on, rel=1e-5)
        assert abs(bench.losses(dropout="on", seed=1)[0] - on[0]) > 1e-4

    def test_dropout_drops_something_else_in_each_step(self, bench: Bench):
        assert len({round(loss, 4) for loss in bench.losses(dropout="on", phase="gradient")}) == 4


class WholeProcessSuite:
    """One worker, `limited`, that is limited in every way at once."""

    LIMITED: ClassVar[dict[str, Value]]

    @pytest.mark.parametrize("axis", ["threads", "inter_threads", "algorithm"])
    def test_it_is_as_asked(self, limited: tuple[Bench, Prepared], axis: str):
        assert observed(limited[1], axis) == self.LIMITED[axis]

    def test_it_may_run_on_one_cpu_only(self, limited: tuple[Bench, Prepared], cpu: int):
        bench, prepared = limited
        assert observed(prepared, "affinity") == str(cpu)
        threads = [int(path.name) for path in Path(f"/proc/{bench.hello.pid}/task").iterdir()]
        assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset({cpu})}


class NativeEngineSuite:
    """One worker, `native`, whose engine is the framework's own kernels."""

    def test_it_is_observed(self, native: Bench):
        assert observed(native.prepare(engine="native"), "engine") == "native"

    def test_it_computes_the_same(self, native: Bench, bench: Bench):
        assert native.losses(engine="native") == pytest.approx(bench.losses(), rel=1e-4)


class RefusedSuite:
    """Every value of the closed axes is refused, by `CANNOT`, or honoured, by another test."""

    FRAMEWORK: ClassVar[str]
    CANNOT: ClassVar[Refusals]
    HONOURED: ClassVar[dict[str, set[Value]]] = {
        "phase": {"forward", "gradient", "train"},
        "layout": {"auto", "nchw", "nhwc"},
        "input_grad": {"off", "on"},
        "dropout": {"off", "on"},
        "checkpointing": {"off", "on"},
        "input": {"resident", "host"},
    }
    ELSEWHERE: ClassVar[tuple[str, ...]] = ("isa", "allocator", "launcher", *BETWEEN_PROCESSES)

    def test_after_all_that_the_worker_still_works(self, bench: Bench):
        with pytest.raises(JobFailed):
            bench.prepare(engine="cudnn")
        assert len(bench.losses()) == 4

    def test_every_value_of_the_closed_axes_was_tried(self):
        """An axis that gets a new value must get a test, or be added to these lists on purpose."""
        tried = {axis: set(values) for axis, values in self.HONOURED.items()}
        for axes, _ in self.CANNOT:
            if len(axes) == 1:
                for axis in axes.keys() & tried.keys():
                    tried[axis].add(axes[axis])
        asked = {name: axis for name, axis in AXES.items() if self.FRAMEWORK in axis.honoured_by}
        closed = {name: axis for name, axis in asked.items() if axis.type == "choice" and name not in self.ELSEWHERE}
        assert tried == {name: set(axis.values) for name, axis in closed.items()}
