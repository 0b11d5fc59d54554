"""Where a setup loses its time, by the recorded layers of an H200 and by layers that were planted in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.results import codec
from deepstone.results.findings import Finding, FindingFailure
from deepstone.results.layers import LayerRow, LayerTable
from deepstone.results.quantity import Quantity
from deepstone.results.tune import LostTime
from deepstone.tuner.lost import most_lost

H200 = Path(__file__).parents[2] / "results" / "h200"


def recorded(name: str = "layers-resnet50") -> Finding:
    return codec.as_bare_finding(json.loads((H200 / f"{name}.json").read_text(encoding="utf-8")))


def table_of(finding: Finding) -> LayerTable:
    assert isinstance(finding.content, LayerTable)
    return finding.content


def lost_in(finding: Finding) -> dict[str, LostTime]:
    lost = most_lost(finding)
    assert not isinstance(lost, Absent)
    return {each.what: each for each in lost}


def longer(finding: Finding, name: str, more_s: float) -> Finding:
    """The same with one layer whose forward pass takes longer."""

    def changed(row: LayerRow) -> LayerRow:
        if row.name != name:
            return row
        assert isinstance(row.forward_s, Quantity)
        return replace(row, forward_s=Quantity.without_interval(row.forward_s.median + more_s, n=1, why="planted"))

    table = table_of(finding)
    return replace(finding, content=replace(table, layers=[changed(row) for row in table.layers]))


def test_the_worst_kinds_come_first_within_what_they_take() -> None:
    lost = most_lost(recorded())
    assert not isinstance(lost, Absent)
    assert [each.what for each in lost[:2]] == ["convolutions", "batch norms"]
    assert [each.lost_s for each in lost] == sorted((each.lost_s for each in lost), reverse=True)
    for each in lost:
        assert each.taken_s is not None
        assert 0 < each.lost_s <= each.taken_s
    step_s = table_of(recorded()).step_s.median
    assert sum(each.taken_s or 0 for each in lost) < 1.05 * step_s


def test_a_planted_loss_is_found_to_the_microsecond() -> None:
    name, more_s = "layer3.2.bn1", 0.020
    before, after = lost_in(recorded())["batch norms"], lost_in(longer(recorded(), name, more_s))["batch norms"]
    assert after.lost_s - before.lost_s == pytest.approx(more_s)
    assert (after.taken_s or 0) - (before.taken_s or 0) == pytest.approx(more_s)
    assert after.layer == name
    assert more_s < (after.layer_lost_s or 0) < more_s + before.lost_s
    assert f"({name} " in after.in_words()


def test_what_is_far_below_the_step_is_not_told() -> None:
    step_s = table_of(recorded()).step_s.median
    assert all(each.lost_s > 0.005 * step_s for each in lost_in(recorded()).values())


@pytest.mark.parametrize("name", ["layers-resnet50-compiled", "layers-alexnet-owt-compiled"])
def test_without_ceilings_nothing_is_known_to_be_lost(name: str) -> None:
    lost = most_lost(recorded(name))
    assert isinstance(lost, Absent)
    assert "doctor --peaks" in lost.reason


def test_layers_that_failed_say_why() -> None:
    failed = Finding(
        schema=1,
        kind="layers",
        model="resnet50",
        outcome="oom",
        failure=FindingFailure(reason="no memory left", stderr_tail=""),
    )
    assert most_lost(failed) == Absent("its layers are not known: no memory left")
