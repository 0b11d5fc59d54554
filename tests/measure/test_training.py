"""What looks at a process show of its training, and of two processes' training against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.absent import Absent
from deepstone.measure.training import (
    Evidence,
    Snapshot,
    disagreement,
    fault,
    same_training,
    standing_still,
    untouched_array,
    without_gradient,
)
from deepstone.results.record import Training
from deepstone.setups.request import complete

STEADY = {"a/weight": 1e-4, "b/weight": -2e-4}
FULL = ("fp32", "fp32")


def course(
    *,
    moves: dict[str, float] = STEADY,
    worth: float = 1.0,
    losses: tuple[float, ...] = (3.0, 2.9, 1.6, 1.5, 1.4),
    until: int = 10**9,
    precision: str = "fp32",
    phase: str = "train",
) -> Evidence:
    """Five looks at steps that change every array by as much; a timed step is `worth` so many, until updates stop."""

    def look(steps: int, moved: float, loss: float) -> Snapshot:
        values = {name: np.full(4, 0.5) + each * min(moved, until) for name, each in moves.items()}
        return Snapshot(steps=steps, loss=loss, values=values)

    at = (1, 3, 103, 203, 205)
    moved = (1, 3, 3 + 100 * worth, 3 + 200 * worth, 5 + 200 * worth)
    looks = [look(*each) for each in zip(at, moved, losses, strict=True)]
    first, early, before_last, late, after = looks
    return Evidence(
        phase=phase,
        precision=precision,
        first=first,
        early=early,
        before_last=before_last,
        late=late,
        after=after,
        losses=list(zip(at, losses, strict=True)),
    )


class TestOneProcess:
    def test_training_has_no_fault(self):
        assert not fault(course())

    @pytest.mark.parametrize("until", [0, 1, 3, 150, 203])
    def test_updates_that_stop_at_any_time(self, until: int):
        assert "changed no parameter" in fault(course(until=until))

    @pytest.mark.parametrize("worth", [0.01, 0.1, 0.3])
    def test_fewer_steps_than_were_timed(self, worth: float):
        assert "100 timed steps" in fault(course(worth=worth))

    def test_a_loss_that_does_not_move(self):
        assert "the loss is 2" in fault(course(losses=(2.0,) * 5))

    def test_a_network_that_has_learnt_its_batch_may_stand_still(self):
        assert not fault(course(until=150, losses=(3.0, 2.0, 1e-5, 1e-6, 1e-6)))

    def test_weights_of_few_bits_may_lose_updates_but_not_all(self):
        assert not fault(course(until=150, precision="bf16"))
        assert fault(course(until=0, precision="bf16"))

    def test_a_loss_scale_may_skip_the_first_updates(self):
        evidence = course(precision="fp16-mixed")
        assert evidence.first is not None
        evidence.early = Snapshot(steps=3, loss=3.0, values=evidence.first.values)
        assert not fault(evidence)
        assert fault(course(until=0, precision="fp16-mixed"))

    def test_gradients_of_nothing_but_zeros(self):
        assert "gradients" in fault(course(phase="gradient", moves={"a/weight": -0.5}, until=1, worth=0.0))

    def test_no_gradients_at_all(self):
        evidence = course(phase="gradient", moves={})
        assert "there are no gradients" in fault(evidence)
        evidence.has_parameters = False
        assert not fault(evidence)

    def test_a_run_that_ended_early_says_nothing(self):
        assert not fault(Evidence(phase="train", precision="fp32"))
        assert isinstance(Evidence(phase="train", precision="fp32").training, Absent)

    @given(st.floats(0.7, 1.5), st.floats(1e-7, 1.0))
    def test_momentum_and_the_size_of_updates_do_not_matter(self, worth: float, size: float):
        assert not fault(course(worth=worth, moves={"a/weight": size}))


def part(*gradients: dict[str, float], frozen: str = "a/weight", **more: Any) -> Evidence:
    """An array stands still after the early steps; `gradients` is what later looks find."""
    evidence = course(**more)
    assert evidence.early is not None
    stays = evidence.early.values[frozen]
    for look in (evidence.before_last, evidence.late, evidence.after):
        assert look is not None
        look.values[frozen] = stays  # pyright: ignore[reportIndexIssue]
    evidence.late_gradients = [{name: np.full(4, each) for name, each in look.items()} for look in gradients]
    return evidence


class TestPartOfTheNetwork:
    """An array that the early steps changed and that the last ones leave alone."""

    def test_it_is_looked_at_again(self):
        assert standing_still(course()) == []
        assert standing_still(part()) == ["a/weight"]
        assert not fault(part()), "without a look at the gradients nothing is said"

    def test_all_arrays_are_another_fault(self):
        assert standing_still(course(until=3)) == []

    def test_one_that_never_changed_was_frozen_from_the_start(self):
        assert standing_still(course(moves={**STEADY, "a/weight": 0.0})) == []

    def test_one_without_gradient(self):
        evidence = part({"b/weight": 1.0}, {"b/weight": 1.0})
        assert without_gradient(evidence) == ["a/weight"]
        expected = "the last steps compute no gradient of a/weight, which the first ones changed"
        assert fault(evidence) == expected
        assert fault(part({"b/weight": 1.0}, precision="bf16")) == expected

    def test_one_that_a_step_leaves_out_by_chance(self):
        assert not fault(part({"b/weight": 1.0}, {"a/weight": 0.0, "b/weight": 1.0}))

    def test_a_framework_that_tells_of_no_gradients(self):
        assert not fault(part({}))

    @pytest.mark.parametrize(("gradient", "is_fault"), [(0.0, False), (1e-9, False), (1.0, True), (-0.3, True)])
    def test_one_with_a_gradient_and_no_update(self, gradient: float, is_fault: bool):
        """Zeros are those of a dead layer, and the smallest are lost in rounding."""
        evidence = part({"a/weight": gradient, "b/weight": 1.0})
        assert bool(fault(evidence)) == is_fault
        assert ("the last 102 steps did not change a/weight" in fault(evidence)) == is_fault

    def test_weights_of_few_bits_lose_updates(self):
        assert not fault(part({"a/weight": 1.0, "b/weight": 1.0}, precision="bf16"))

    def test_without_update_its_gradient_is_gone(self):
        evidence = course(phase="gradient")
        for look in (evidence.before_last, evidence.late, evidence.after):
            assert look is not None
            del look.values["a/weight"]  # pyright: ignore[reportIndexIssue]
        assert standing_still(evidence) == ["a/weight"]
        evidence.late_gradients = [{"b/weight": np.ones(4)}]
        assert "no gradient of a/weight, as the first ones did" in fault(evidence)
        evidence.late_gradients.append({"a/weight": np.zeros(4), "b/weight": np.ones(4)})
        assert not fault(evidence)


class TestTwoProcesses:
    def test_the_same(self):
        a, b = course(), course()
        assert not disagreement(a.training, b.training, FULL)
        assert not untouched_array(a, b)

    @pytest.mark.parametrize(
        "other",
        [
            {"losses": (3.2, 2.9, 1.6, 1.5, 1.4)},
            {"losses": (3.0, 2.97, 1.6, 1.5, 1.4)},
            {"losses": (3.0, 2.9, 2.9, 2.9, 2.9)},
            {"moves": {name: 0.5 * size for name, size in STEADY.items()}},
            {"moves": {name: 2.0 * size for name, size in STEADY.items()}},
        ],
        ids=str,
    )
    def test_another_way_on_either_side(self, other: dict[str, Any]):
        a, b = course().training, course(**other).training
        assert disagreement(a, b, FULL)
        assert disagreement(b, a, FULL)

    def test_losses_may_swing_on_their_way_down(self):
        """As AlexNet's do with two images; what swings is not the same after so many steps."""
        a = Training(losses=[(1, 22.131), (3, 7.0659), (7, 0.0083), (15, 1.69), (31, 0.00029)])
        b = Training(losses=[(1, 22.131), (3, 7.0659), (10, 3.1), (20, 0.9), (40, 0.004)])
        assert not disagreement(a, b, FULL)

    def test_a_slower_side_may_have_been_looked_at_less_often(self):
        quick = Training(losses=[(1, 3.0), (3, 2.95), (30, 1.0), (400, 0.1)])
        for end in ((25, 2.8), (300, 0.2)):
            slow = Training(losses=[(1, 3.0), (3, 2.95), end])
            assert not disagreement(quick, slow, FULL)
            assert not disagreement(slow, quick, FULL)

    def test_an_array_that_one_side_leaves_alone(self):
        a, b = course(), course(moves={**STEADY, "a/weight": 0.0})
        assert untouched_array(a, b) == "B does not update a/weight"
        assert untouched_array(b, a) == "A does not update a/weight"

    def test_an_array_that_one_side_has_no_gradient_of(self):
        a, b = course(phase="gradient"), course(phase="gradient", moves={"a/weight": 1e-4})
        assert untouched_array(a, b) == "B has no gradient of b/weight"
        assert untouched_array(b, a) == "A has no gradient of b/weight"

    def test_few_bits_are_forgiven_more(self):
        a, b = course().training, course(losses=(3.1, 3.0, 1.6, 1.5, 1.4)).training
        assert disagreement(a, b, FULL)
        assert not disagreement(a, b, ("fp32", "bf16-mixed"))

    # The losses of steps 1 and 3 on an NVIDIA H200 (batch 128 and 256) and on two cores (batch 32).
    @pytest.mark.parametrize(
        ("precisions", "losses"),
        [
            (("tf32-conv", "bf16-mixed"), ((7.127, 6.678), (7.125, 7.054))),  # inception-v3
            (("fp32", "bf16-mixed"), ((7.048, 6.149), (7.043, 6.862))),
            (("tf32-conv", "bf16-mixed"), ((7.984, 7.504), (7.986, 7.861))),  # resnet50
            (("fp32", "bf16-mixed"), ((7.593, 5.303), (7.587, 6.910))),
        ],
        ids=str,
    )
    def test_narrow_products_may_learn_noise_more_slowly(
        self, precisions: tuple[str, str], losses: tuple[tuple[float, float], tuple[float, float]]
    ):
        wide, narrow = (Training(losses=[(1, first), (3, third)]) for first, third in losses)
        assert not disagreement(wide, narrow, precisions)
        assert not disagreement(narrow, wide, precisions[::-1])
        assert disagreement(wide, narrow, precisions[:1] * 2), "in one precision that is other training"

    @pytest.mark.parametrize(("left", "is_learning"), [(0.93, True), (0.995, False)])
    def test_narrow_products_learn_at_all(self, left: float, is_learning: bool):
        wide = Training(losses=[(1, 7.13), (3, 6.68), (43, 3.42)])
        narrow = Training(losses=[(1, 7.13), (3, 7.05), (45, 7.13 * left)])
        assert bool(disagreement(wide, narrow, ("fp32", "bf16-mixed"))) != is_learning
        assert bool(disagreement(narrow, wide, ("bf16-mixed", "fp32"))) != is_learning
        alike = Training(losses=[(1, 7.13), (3, 6.68), (45, 7.13 * left)])
        assert disagreement(wide, alike, FULL)

    def test_narrow_products_learn_no_faster_and_nothing_else(self):
        wide, slower = Training(losses=[(1, 7.6), (3, 5.3)]), Training(losses=[(1, 7.6), (3, 5.9)])
        assert not disagreement(wide, slower, ("fp32", "tf32"))
        assert disagreement(slower, wide, ("fp32", "tf32")), "wide products learn no more slowly than narrow ones"
        for third in (4.8, 8.1):
            other = Training(losses=[(1, 7.6), (3, third)])
            assert disagreement(wide, other, ("fp32", "bf16-mixed")) == (
                f"the loss of step 3 is 5.3 in A and {third} in B"
            )

    def test_what_records_of_before_do_not_say_is_held_against_nobody(self):
        assert not disagreement(None, course().training, FULL)

    def test_which_requests_ask_for_one_training(self):
        asked = complete({"batch": 8, "phase": "train", "seed": 0, "optimizer": "momentum", "dropout": "off"})
        assert same_training(asked, {**asked, "optimizer": "momentum-fused"})
        assert not same_training({**asked, "dropout": "on"}, {**asked, "dropout": "on"})
        for axis, other in (
            ("batch", 9),
            ("seed", 1),
            ("optimizer", "adam"),
            ("processes", 2),
            ("compression", "fp16"),
        ):
            assert not same_training(asked, {**asked, axis: other})
