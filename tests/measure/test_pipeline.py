"""Waiting in pipelines, from passes whose times are known."""

from __future__ import annotations

import pytest

from deepstone.measure.pipeline import BACKWARD, FORWARD, Direction, Pass, ideal_share, replay


def passes(stage: int, order: str, forward_s: float = 1.0, backward_s: float = 2.0) -> list[Pass]:
    """`F0 F1 B0 B1` of one stage."""
    found: list[Pass] = []
    for word in order.split():
        direction: Direction = FORWARD if word[0] == "F" else BACKWARD
        seconds = forward_s if word[0] == "F" else backward_s
        found.append(Pass(direction=direction, stage=stage, microbatch=int(word[1:]), seconds=seconds))
    return found


GPIPE = "F0 F1 F2 F3 B0 B1 B2 B3"


@pytest.mark.parametrize("orders", [(GPIPE, GPIPE), ("F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3")])
def test_equal_stages_wait_as_long_as_theory_says(orders: tuple[str, str]):
    found = replay([passes(stage, order) for stage, order in enumerate(orders)], [0.0, 0.0])
    assert found.step_s == pytest.approx((4 + 1) * 3.0)
    assert found.share == pytest.approx(ideal_share(processes=2, microbatches=4)) == pytest.approx(1 / 5)


def test_one_microbatch_splits_layers_without_a_pipeline():
    found = replay([passes(stage, "F0 B0") for stage in range(4)], [0.0] * 4)
    assert found.share == pytest.approx(ideal_share(processes=4, microbatches=1)) == pytest.approx(3 / 4)


def test_the_slowest_stage_decides():
    found = replay([passes(0, GPIPE, 1.0, 1.0), passes(1, GPIPE, 3.0, 3.0)], [0.0, 0.0])
    assert found.step_s == pytest.approx(1 + 8 * 3 + 1)
    assert found.shares == pytest.approx([1 - 8 / 26, 1 - 24 / 26])


def test_the_update_is_no_waiting():
    found = replay([passes(0, GPIPE), passes(1, GPIPE)], [5.0, 5.0])
    assert found.step_s == pytest.approx(20.0)
    assert found.share == pytest.approx(3 / 20)


def test_interleaved_stages_wait_half_as_long():
    assert ideal_share(processes=4, microbatches=8, stages_per_process=2) == pytest.approx(3 / 19)


def test_a_circle_is_told():
    with pytest.raises(ValueError, match="circle"):
        replay([passes(0, "B0 F0"), passes(1, "F0 B0")], [0.0, 0.0])
