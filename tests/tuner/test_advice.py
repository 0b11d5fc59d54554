"""Advice: what holds is ranked, what was given is kept, what is given up is told, and own records come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from analysis.measured_runs import looks, rounds
from factory import sha, typed_records
from hypothesis import given
from hypothesis import strategies as st

from deepstone.results.advice import Advice, Facts, Rule
from deepstone.results.parts import Value
from deepstone.setups.axes import CURRENT
from deepstone.setups.request import complete
from deepstone.setups.rules import broken_rule
from deepstone.tuner.advice import FILE, MOST, Asked, advise, choices, shipped, starts
from deepstone.tuner.evidence import rules_from, tables
from deepstone.tuner.published import as_text, published, rules_of

ROOT = Path(__file__).resolve().parents[2]
CPU = Facts(device="cpu", phase="train", batch=32, cores=2, batch_norm=False)
GPU = Facts(device="gpu", phase="train", batch=256, matrix_units="bf16", batch_norm=True)
CHOSEN = {("torch", "cpu", "precision"): "fp32", ("torch", "cpu", "layout"): "nchw"}


def made(records: list[Any]) -> list[Rule]:
    return rules_from(tables(typed_records(records)))


def asked(facts: Facts = CPU, **more: Any) -> Asked:
    return Asked(**{"facts": facts, "model": "vgg16", "chosen": CHOSEN, **more})


def words(found: list[Advice]) -> list[str]:
    return [each.words for each in found]


FASTER = rounds(100, 101, 99) + rounds(150, 151, 149, layout="nhwc") + rounds(300, 302, 298, precision="bf16-mixed")
SLOWER = rounds(60, 61, 59, engine="native")


class TestChoice:
    def test_the_fastest_first_and_nothing_that_is_slower(self):
        assert words(advise(asked(), (), made(FASTER + SLOWER))) == ["precision=bf16-mixed", "layout=nhwc"]

    def test_what_no_group_shows_is_no_advice(self):
        noisy = rounds(100, 140, 90) + rounds(115, 90, 150, layout="nhwc")
        assert advise(asked(), (), made(noisy)) == []

    def test_what_a_group_contradicts_is_no_advice(self):
        other = rounds(100, 101, 99, model="cifarnet") + rounds(90, 91, 89, model="cifarnet", layout="nhwc")
        rules = made(rounds(100, 101, 99) + rounds(150, 151, 149, layout="nhwc") + other)
        assert advise(asked(), (), rules) == []

    def test_a_setting_that_was_given_is_kept(self):
        both = rounds(400, 402, 398, precision="bf16-mixed", layout="nhwc")
        rules = made(FASTER + both)
        assert words(advise(asked(kept={"layout": "nhwc"}), (), rules)) == ["precision=bf16-mixed layout=nhwc"]
        found = advise(asked(kept={"precision": "fp32"}), (), rules)  # which is torch's own
        assert words(found) == ["layout=nhwc"]
        assert found[0].gain.median == pytest.approx(1.5, rel=0.02)

    def test_other_frameworks_only_where_they_may_be_chosen(self):
        rules = made(rounds(100, 101, 99) + rounds(150, 151, 149, framework="jax"))
        assert words(advise(asked(), (), rules)) == ["framework=jax"]
        assert advise(asked(frameworks=("torch",)), (), rules) == []
        assert advise(asked(kept={"framework": "torch"}, frameworks=("torch",)), (), rules) == []

    def test_a_setup_that_cannot_run_here_is_left_out(self):
        rules = made(rounds(100, 101, 99) + rounds(190, 191, 189, processes=2, threads=1))
        assert words(advise(asked(), (), rules)) == ["processes=2"]
        assert advise(asked(Facts(device="cpu", phase="train", batch=3, cores=2)), (), rules) == []  # 3 is odd

    def test_a_setup_that_gives_up_nothing_is_always_there(self):
        records = rounds(100, 101, 99) + rounds(150, 151, 149, layout="nhwc")
        for number, axes in enumerate(
            ({}, {"layout": "nhwc"}, {"compile": "default"}, {"threads": 1}, {"isa": "avx2"})
        ):
            speed = 400 + 10 * number
            records += rounds(speed, speed + 1, speed - 1, precision="bf16-mixed", **axes)
        found = advise(asked(), (), made(records))
        assert len(found) == MOST
        assert [each.words for each in found if not each.gives_up] == ["layout=nhwc"]

    def test_gains_over_another_setup_count_by_what_is_known_of_that_one(self):
        """Twice as fast as something that is four times as slow is no advice."""
        records = rounds(100, 101, 99) + rounds(25, 26, 24, precision="fp64")
        records += rounds(50, 51, 49, precision="fp64", layout="nhwc")
        assert advise(asked(), (), made(records)) == []


class TestOwnRecords:
    own = made(rounds(100, 101, 99, model="vgg16") + rounds(50, 51, 49, model="vgg16", layout="nhwc"))
    here = asked(machine_sha=sha("here"))

    def test_they_count_before_what_others_saw(self):
        assert words(advise(self.here, (), made(FASTER))) == ["precision=bf16-mixed", "layout=nhwc"]
        assert words(advise(self.here, self.own, made(FASTER))) == ["precision=bf16-mixed"]

    def test_what_was_measured_here_says_so(self):
        own = made(rounds(100, 101, 99, model="vgg16") + rounds(120, 121, 119, model="vgg16", layout="nhwc"))
        found = advise(self.here, own, [])
        assert (found[0].words, found[0].confidence) == ("layout=nhwc", "measured here")
        assert found[0].gain.median == pytest.approx(1.2, rel=0.02)
        assert advise(asked(), own, [])[0].confidence == "low"

    def test_this_model_then_other_models_then_rules(self):
        """However much faster something was elsewhere."""
        mine = rounds(100, 101, 99, model="vgg16") + rounds(120, 121, 119, model="vgg16", layout="nhwc")
        other = rounds(100, 101, 99, model="cifarnet")
        other += rounds(200, 201, 199, model="cifarnet", compile="default")
        rules = made(rounds(100, 101, 99, machine="there") + rounds(400, 401, 399, machine="there", threads=1))
        found = advise(self.here, made(mine + other), rules)
        assert words(found) == ["layout=nhwc", "compile=default", "threads=1"]
        assert [each.confidence for each in found] == ["measured here", "low", "low"]

    def test_other_models_that_were_measured_apart_come_after_rules(self):
        other = looks(100, 101, 99, 100, model="cifarnet") + looks(800, 801, 799, 800, model="cifarnet", threads=1)
        rules = made(rounds(100, 101, 99, machine="there") + rounds(150, 151, 149, machine="there", layout="nhwc"))
        assert words(advise(self.here, made(other), rules)) == ["layout=nhwc", "threads=1"]
        again = made(
            other + looks(100, 101, 99, 100, model="vgg16") + looks(130, 131, 129, 130, model="vgg16", threads=1)
        )
        found = advise(self.here, again, rules)
        assert words(found) == ["threads=1", "layout=nhwc"]
        assert found[0].gain.median == pytest.approx(1.3, rel=0.02), "of this model alone"

    def test_shipped_records_of_an_equal_machine_are_not_ones_own(self):
        rules = made(rounds(100, 101, 99, model="vgg16") + rounds(120, 121, 119, model="vgg16", layout="nhwc"))
        assert advise(self.here, [], rules)[0].confidence == "measured on a machine of this type"
        assert advise(self.here, rules, [])[0].confidence == "measured here"

    def test_what_own_runs_show_to_be_faster_comes_before_what_is_slower(self):
        """TensorFlow on one thread was measured against the default, and against TensorFlow, which beats it."""
        mine = rounds(100, 101, 99, model="vgg16", minute=1)
        slower = rounds(130, 131, 129, model="vgg16", framework="tensorflow", threads=1)
        faster = [
            {**each, "started_at": each["started_at"].replace("T03", "T05")}
            for each in rounds(160, 161, 159, model="vgg16", framework="tensorflow")
        ]
        again = [
            {**each, "started_at": each["started_at"].replace("T03", "T05")}
            for each in rounds(130, 131, 129, model="vgg16", framework="tensorflow", threads=1)
        ]
        rules = made(
            rounds(100, 101, 99, machine="there") + rounds(144, 145, 143, machine="there", framework="tensorflow")
        )
        own = [each for each in made(mine + slower + faster + again) if each.setup != {"framework": "tensorflow"}]
        found = advise(self.here, own, rules)
        assert words(found) == ["framework=tensorflow", "framework=tensorflow threads=1"]
        assert [each.confidence for each in found] == ["measured here"] * 2
        assert found[0].over == {"framework": "tensorflow", "threads": 1}


class TestGivenUp:
    @pytest.mark.parametrize(
        ("facts", "setup", "tells"),
        [
            (CPU, {"precision": "bf16-mixed"}, ["bf16"]),
            (CPU, {"layout": "nhwc"}, []),
            (CPU, {"processes": 2, "threads": 1}, []),
            (
                Facts(device="cpu", phase="train", batch=32, cores=2, batch_norm=True),
                {"processes": 2, "threads": 1},
                ["norm"],
            ),
        ],
        ids=str,
    )
    def test_it_is_told(self, facts: Facts, setup: dict[str, Value], tells: list[str]):
        found = advise(asked(facts), (), made(rounds(100, 101, 99) + rounds(200, 202, 198, **setup)))
        assert [word in text for word, text in zip(tells, found[0].gives_up, strict=True)] == [True] * len(tells)

    def test_what_a_framework_chooses_by_itself_counts(self):
        """JAX takes TF32 on a GPU where torch takes it for convolutions only."""
        rules = [rule for rule in shipped().rules if dict(rule.setup) == {"framework": "jax"}]
        found = next(iter(advise(Asked(facts=GPU, model="", chosen=choices()), (), rules)))
        assert "TF32" in found.gives_up[0]


class TestShippedRules:
    def test_they_are_made_from_the_published_records(self):
        """`python scripts/make_advice.py` writes them."""
        current = (ROOT / "deepstone" / "tuner" / FILE).read_text(encoding="utf-8")
        assert current == as_text(rules_of(*published(ROOT / "results")))

    def test_on_a_gpu_narrow_numbers_with_channels_last_compiled(self):
        found = advise(Asked(facts=GPU, model="resnet50", chosen=choices(), frameworks=("torch",)))
        assert {"precision": "bf16-mixed", "layout": "nhwc", "compile": "default"}.items() <= found[0].setup.items()
        assert found[0].gain.low > 2.5

    def test_every_rule_names_its_records(self):
        known = {record.id for record in published(ROOT / "results")[0]}
        for rule in shipped().rules:
            assert rule.gain.n == len(rule.seen)
            assert {run for seen in rule.seen for run in seen.records} <= known

    @given(
        device=st.sampled_from(["cpu", "gpu"]),
        phase=st.sampled_from(["forward", "gradient", "train"]),
        batch=st.integers(1, 4096),
        cores=st.one_of(st.none(), st.integers(1, 256)),
        units=st.sampled_from([None, "none", "fp16", "bf16", "amx"]),
        batch_norm=st.sampled_from([None, True, False]),
        kept=st.sampled_from([{}, {"precision": "fp32"}, {"framework": "jax"}, {"layout": "nhwc"}]),
    )
    def test_whatever_the_facts_advice_can_run_and_is_shown(
        self, device: Any, phase: Any, batch: int, cores: int | None, units: Any, batch_norm: Any, kept: Any
    ):
        facts = Facts(device=device, phase=phase, batch=batch, cores=cores, matrix_units=units, batch_norm=batch_norm)
        frameworks = (kept["framework"],) if "framework" in kept else CURRENT
        for each in advise(Asked(facts=facts, model="x", kept=kept, frameworks=frameworks, chosen=choices())):
            request = {
                "framework": "torch",
                "device": "gpu:0" if device == "gpu" else "cpu",
                "batch": batch,
                **each.setup,
            }
            assert broken_rule(complete({**request, "phase": phase})) is None
            assert each.gain.median > 1
            assert each.gain.low <= each.gain.median <= each.gain.high
            assert each.records
            assert all(each.setup.get(axis, value) == value for axis, value in kept.items())


def test_a_search_starts_at_the_best_of_each_framework():
    found = [dict(setup) for setup in starts(GPU)]
    compiled = {"precision": "bf16-mixed", "layout": "nhwc", "compile": "default"}.items()
    assert any(compiled <= setup.items() for setup in found)
    assert {"framework": "jax", "precision": "bf16-mixed", "space_to_depth": "on"} in found
    assert len(found) == len({setup.get("framework") for setup in found})
