"""Which runs a search refused as other training than its default."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tune_example import BEST, DEFAULT, NOT_KNOWN, log_of, look, tuned

from deepstone.absent import Absent
from deepstone.results.searched import NO_SEARCHES
from deepstone.results.tune import NOT_THE_SAME, ONLY_ORDER, SameSetup, SameTraining, TuneLog, refused_runs
from deepstone.store.store import Store

NHWC = {**DEFAULT, "layout": "nhwc"}


def same(why_not: str, *, is_refuted: bool = True) -> SameSetup:
    return SameSetup(
        setup={**NHWC, "batch": 32},
        ok=False,
        gradient=NOT_KNOWN,
        loss=NOT_KNOWN,
        update=NOT_KNOWN,
        why_not=why_not,
        is_refuted=is_refuted,
    )


def log(checked: SameSetup) -> TuneLog:
    looks = [look("start", DEFAULT, 100.0, 1), look("search", NHWC, 200.0, 2)]
    return log_of(looks, [checked])


def test_a_check_refuses_every_run_of_its_setup():
    found = log(same("gradients differ by 78 %"))
    assert refused_runs([found]) == {found.looks[1].run: "gradients differ by 78 %"}
    finding = replace(tuned(), same=SameTraining(level="close", ok=True, setups=found.same, given_up=""))
    assert set(refused_runs([finding])) == {each.run for each in finding.looks if each.setup == NHWC}


@pytest.mark.parametrize(
    "checked", [same("time ran out", is_refuted=False), same(f"{ONLY_ORDER}, and this alters rounding")], ids=str
)
def test_what_is_not_shown_to_be_other_training_is_not_refused(checked: SameSetup):
    assert refused_runs([log(checked)]) == {}


def test_the_steps_of_a_launch_refuse_it():
    refused = look("search", BEST, Absent(f"{NOT_THE_SAME}the loss of step 3 is 9"), 3)
    finding = replace(tuned(), same=Absent("nothing is shown to be better"), looks=[refused])
    assert refused_runs([finding]) == {refused.run: "the loss of step 3 is 9"}


def test_a_store_knows_what_its_searches_refused(tmp_path: Path):
    store = Store.open(tmp_path / "store")
    assert store.searched() == NO_SEARCHES
    store.tunes.write(log(same("gradients differ")))
    assert list(store.searched().refused.values()) == ["gradients differ"]
