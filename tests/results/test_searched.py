"""What searches say about the runs that they made."""

from __future__ import annotations

from msgspec.structs import replace
from tune_example import BEST, DEFAULT, NOT_KNOWN, OTHER, log_of, tuned

from deepstone.absent import Absent
from deepstone.results.searched import Searched
from deepstone.results.tune import NOT_SHOWN, SameSetup, SameTraining, TuneObjective


def same(why_not: str = "") -> SameSetup:
    return SameSetup(
        setup=dict(OTHER), ok=not why_not, gradient=NOT_KNOWN, loss=NOT_KNOWN, update=NOT_KNOWN, why_not=why_not
    )


class TestFinals:
    def test_only_finals_are_rounds(self):
        finding = tuned()
        found = Searched.of([finding]).finals
        assert set(found) == {each.run for each in finding.looks if each.kind == "final"}
        assert {each.round.search for each in found.values()} == {finding.looks[0].run}
        assert sorted(each.round.number for each in found.values()) == sorted([*range(1, 7)] * 3)

    def test_they_have_the_gain_that_the_search_reports(self):
        finding = tuned()
        found = Searched.of([finding]).finals
        for final in finding.finals:
            for run in final.runs:
                assert found[run].is_default == final.is_default
                assert found[run].gain == final.ratio

    def test_a_gain_in_memory_is_none_in_speed(self):
        finding = replace(tuned(), objective=TuneObjective(name="memory"))
        assert all(each.gain is None for each in Searched.of([finding]).finals.values())

    def test_a_finding_has_the_last_word(self):
        finding = tuned()
        of_finding, of_log = Searched.of([finding]).finals, Searched.of([log_of(tuned().looks, [])]).finals
        assert {run: each.round for run, each in of_log.items()} == {
            run: each.round for run, each in of_finding.items()
        }
        assert Searched.of([finding, log_of(tuned().looks, [])]).finals == of_finding


class TestProof:
    RUNS = frozenset(each.run for each in tuned().looks if each.setup == OTHER)

    def test_what_was_not_proven(self):
        found = Searched.of([log_of(tuned().looks, [same("time ran out")])])
        assert found.unproven == dict.fromkeys(self.RUNS, "time ran out")
        assert not found.refused

    def test_what_was_proven(self):
        found = Searched.of([log_of(tuned().looks, [same()])])
        assert (found.proven, found.unproven) == (self.RUNS, {})

    def test_a_finalist_without_a_ratio_for_want_of_a_proof(self):
        finals = [replace(each, ratio=Absent(NOT_SHOWN)) if each.setup == OTHER else each for each in tuned().finals]
        found = Searched.of([replace(tuned(), finals=finals, same=Absent("nothing is shown to be better"))])
        assert found.unproven == dict.fromkeys(self.RUNS, NOT_SHOWN)

    def test_a_refusal_is_more_than_a_missing_proof(self):
        refuted = replace(same("gradients differ"), is_refuted=True)
        finding = replace(tuned(), same=SameTraining(level="close", ok=True, setups=[refuted], given_up=""))
        found = Searched.of([finding])
        assert found.refused == dict.fromkeys(self.RUNS, "gradients differ")
        assert not found.unproven
        assert not {each.run for each in finding.looks if each.setup in (DEFAULT, BEST)} & set(found.refused)
