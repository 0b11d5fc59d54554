"""Rules from records: what differs, by how much, over which groups, and under which facts."""

from __future__ import annotations

from typing import Any

import pytest
from analysis.measured_runs import looks, rounds, run
from factory import typed_records

from deepstone.results.advice import Conditions, Facts, Rule
from deepstone.results.parts import Value
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.results.searched import InFinals, Round, Searched
from deepstone.tuner.evidence import in_numbers, rules_from, tables, words_of


def rule(records: list[Any], setup: dict[str, Value], over: dict[str, Value] | None = None) -> Rule:
    """The one rule about this setup."""
    found = [each for each in made(records) if dict(each.setup) == setup and dict(each.over) == (over or {})]
    assert len(found) == 1, [(dict(each.over), dict(each.setup)) for each in made(records)]
    return found[0]


def made(records: list[Any]) -> list[Rule]:
    return rules_from(tables(typed_records(records)))


def typed(**settings: Any) -> Record:
    return typed_records([run(**settings)])[0]


class TestWords:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({}, {}),
            ({"framework": "torch", "device": "cpu", "seed": 3}, {}),
            ({"layout": "nchw", "compile": "off"}, {}),  # what torch chooses anyway
            ({"layout": "nhwc"}, {"layout": "nhwc"}),
            ({"framework": "jax"}, {"framework": "jax"}),
            ({"scheme": "data"}, {}),  # what auto is
            ({"processes": 1, "threads": 2}, {}),  # as many as there are cores
            ({"threads": 1}, {"threads": "cores/2"}),
            ({"processes": 2, "threads": 1}, {"processes": "cores"}),
            ({"optimizer": "adam"}, {}),  # belongs to the workload
            ({"optimizer": "momentum-fused"}, {"optimizer": "momentum-fused"}),
        ],
        ids=str,
    )
    def test_only_what_makes_a_difference(self, settings: dict[str, Any], words: dict[str, Value]):
        chosen = {("torch", "cpu", "layout"): "nchw", ("torch", "cpu", "compile"): "off"}
        assert dict(words_of(typed(**settings), chosen)) == words

    @pytest.mark.parametrize(
        ("setup", "cores", "numbers"),
        [
            ({"processes": "cores/4", "layout": "nhwc"}, 16, {"processes": 4, "layout": "nhwc"}),
            ({"processes": "cores/4"}, 4, None),  # one process is none to speak of
            ({"threads": "cores/2"}, 2, {"threads": 1}),
            ({"threads": "cores"}, None, None),
            ({"threads": 3}, None, {"threads": 3}),
        ],
        ids=str,
    )
    def test_parts_of_a_machine_in_numbers(self, setup: dict[str, Value], cores: int | None, numbers: Any):
        assert in_numbers(setup, cores) == numbers


class TestRules:
    def test_the_finals_of_a_search_are_rounds(self):
        """With the ratio of the search; its looks do not count beside them."""
        base, changed = looks(100, 50, 51, 52), looks(400, 150, 151, 149, layout="nhwc")
        gain = Quantity.of(median=2.9, low=2.8, high=3.1, n=3)
        finals = {
            each["id"]: InFinals(round=Round(search="a", number=number), is_default=side is base, gain=gain)
            for side in (base, changed)
            for number, each in enumerate(side[1:], 1)
        }
        (found,) = rules_from(tables(typed_records(base + changed), Searched(finals=finals)))
        assert (found.gain.median, found.seen[0].rounds) == (2.9, 3)
        assert set(found.seen[0].records) == set(finals)

    def test_a_vague_interval_counts_for_the_model_that_is_asked_about(self):
        """If it shows which side is faster; of several the least vague."""
        wide = rounds(100, 60, 150) + rounds(900, 900, 500, layout="nhwc", doubts=["other_load"])
        assert made(wide) == []
        found = tables(typed_records(wide))
        (asked,) = rules_from(found, asked="alexnet-owt")
        assert asked.gain.low > 1.02
        assert asked.gain.high > 2 * asked.gain.low
        assert rules_from(found, asked="vgg16") == []
        open_ = tables(typed_records(rounds(100, 20, 150) + rounds(90, 400, 30, layout="nhwc", doubts=["other_load"])))
        assert rules_from(open_, asked="alexnet-owt") == []

    def test_a_gain_is_the_ratio_of_speeds_in_rounds(self):
        base, changed = rounds(100, 101, 99), rounds(150, 151, 149, layout="nhwc")
        found = rule(base + changed, {"layout": "nhwc"})
        assert found.gain.median == pytest.approx(1.5, rel=0.02)
        assert found.gain.n == 1
        assert found.seen[0].model == "alexnet-owt"
        assert set(found.seen[0].records) == {each["id"] for each in base + changed}
        assert found.when == Conditions(device="cpu", phase="train")

    def test_groups_are_spanned_and_not_pooled(self):
        records: list[Any] = []
        for model, speed in (("alexnet-owt", 200), ("vgg16", 120), ("cifarnet", 150)):
            records += rounds(100, 101, 99, model=model) + rounds(
                speed, speed + 1, speed - 1, model=model, layout="nhwc"
            )
        found = rule(records, {"layout": "nhwc"})
        assert found.gain.n == 3
        assert found.gain.median == pytest.approx(1.5, rel=0.02)
        assert found.gain.low < 1.2 < 2 < found.gain.high

    def test_a_setup_is_held_against_those_that_it_extends(self):
        records = rounds(100, 101) + rounds(150, 151, precision="bf16-mixed")
        records += rounds(300, 302, precision="bf16-mixed", layout="nhwc")
        both = {"precision": "bf16-mixed", "layout": "nhwc"}
        assert rule(records, both).gain.median == pytest.approx(3, rel=0.02)
        assert rule(records, both, {"precision": "bf16-mixed"}).gain.median == pytest.approx(2, rel=0.02)

    def test_without_the_default_the_plainest_setup_takes_its_place(self):
        records = rounds(100, 101, precision="fp64") + rounds(300, 302, precision="bf16-mixed", layout="nhwc")
        found = rule(records, {"precision": "bf16-mixed", "layout": "nhwc"}, {"precision": "fp64"})
        assert found.gain.median == pytest.approx(3, rel=0.02)

    def test_narrow_numbers_depend_on_the_units_for_them(self):
        records = rounds(100, 101) + rounds(50, 51, precision="bf16-mixed")
        for record in records:
            record["environment"]["machine"]["cpu"]["flags"] = ["avx2", "avx512f"]
        when = rule(records, {"precision": "bf16-mixed"}).when
        assert when.matrix_units == "none"
        assert not when.hold(Facts(device="cpu", phase="train", batch=8, matrix_units="amx"))
        assert when.hold(Facts(device="cpu", phase="train", batch=8))

    def test_counts_hold_near_their_number_of_cores(self):
        when = rule(rounds(100, 101) + rounds(60, 61, threads=1), {"threads": "cores/2"}).when
        assert [when.hold(Facts(device="cpu", phase="train", batch=8, cores=n)) for n in (1, 4, 5)] == [
            True,
            True,
            False,
        ]

    def test_groups_that_disagree_are_split_by_a_fact(self):
        records: list[Any] = []
        for model, speed in (("resnet50", 200), ("resnet101", 210), ("vgg16", 90), ("alexnet-owt", 95)):
            records += rounds(100, 101, 99, model=model) + rounds(
                speed, speed + 1, speed - 1, model=model, layout="nhwc"
            )
        found = {each.when.batch_norm: each.gain for each in made(records) if dict(each.setup) == {"layout": "nhwc"}}
        assert set(found) == {True, False}
        assert found[True].low > 1.9
        assert found[False].high < 1

    def test_what_compare_measured_in_pairs_comes_first(self):
        base, changed = run(100), run(100, layout="nhwc")
        base["comparison"] = {
            "side": "a",
            "other_job": changed["job"],
            "ratio": {"median": 1.4, "low": 1.35, "high": 1.45, "n": 8},
            "verdict": "b faster",
            "pairs": 8,
            "pairing": "together",
            "sameness": {"absent": "one framework"},
        }
        found = rule([base, changed], {"layout": "nhwc"})
        assert (found.gain.median, found.gain.low) == (1.4, 1.35)
        assert "8 pairs" in found.seen[0].how


class TestWhatIsNoEvidence:
    def test_another_machine(self):
        assert made(rounds(100, 101) + rounds(150, 151, layout="nhwc", machine="there")) == []

    def test_another_batch_or_phase(self):
        assert made(rounds(100, 101) + rounds(150, 151, layout="nhwc", batch=64)) == []
        assert made(rounds(100, 101) + rounds(150, 151, layout="nhwc", phase="forward")) == []

    def test_a_legacy_version_or_framework(self):
        assert made(rounds(100, 101) + rounds(150, 151, framework="tensorflow@1.12.0", version="1.12.0")) == []
        assert made(rounds(100, 101) + rounds(150, 151, framework="theano", version="1.0.5")) == []

    def test_a_failed_run(self):
        assert made([*rounds(100, 101), run(150, layout="nhwc", outcome="crashed")]) == []

    def test_few_samples_measured_apart(self):
        assert made([run(100), run(150, layout="nhwc", samples=5)]) == []

    def test_a_wide_interval_of_a_busy_machine(self):
        wide = (rounds(100, 20, 150), rounds(900, 4000, 300, layout="nhwc"))
        assert made([*wide[0], *wide[1]])
        assert made([*wide[0], *rounds(900, 4000, 300, layout="nhwc", doubts=["other_load"])]) == []
        narrow = rounds(150, 151, 149, layout="nhwc", doubts=["other_load"])
        assert made([*rounds(100, 101, 99), *narrow])

    def test_single_looks_of_a_search(self):
        """Nobody knows how far the next launch is off."""
        assert made(looks(100) + looks(150, layout="nhwc")) == []
        assert made(looks(100, 101, 99, 100) + looks(150, layout="nhwc")) == []
        found = rule(looks(100, 101, 99, 100) + looks(150, 151, 149, 150, layout="nhwc"), {"layout": "nhwc"})
        assert (found.seen[0].rounds, found.gain.median) == (0, pytest.approx(1.5, rel=0.02))
        assert found.seen[0].how == "measured apart; bounds from the ends of both intervals (across launches)"

    def test_a_setup_that_a_search_refused_as_other_training(self):
        fast = rounds(200, 202, 204, layout="nhwc")
        records = rounds(100, 101, 102) + fast
        assert rules_from(tables(typed_records(records)))
        assert not rules_from(tables(typed_records(records), Searched(refused={fast[0]["id"]: "gradients differ"})))

    def test_runs_whose_steps_are_another_training(self):
        training = {"losses": [[1, 3.0], [3, 2.6]], "early_change": 0.01, "arrays": 8, "moved": 8}
        default = [{**each, "training": training} for each in rounds(100, 101, 102)]
        other = [{**each, "training": {**training, "moved": 4}} for each in rounds(200, 202, 204, layout="nhwc")]
        assert not made(default + other)
