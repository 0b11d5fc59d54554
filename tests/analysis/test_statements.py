"""Each sentence says what the records show, stands only where its interval supports it, and names what it rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factory import sha
from measured_runs import looks, rounds, run
from of_json import statements

from deepstone.results.ceilings import Ceilings
from deepstone.results.codec import convert
from deepstone.results.doubt import DOUBT_CODES
from deepstone.results.findings import Finding
from deepstone.results.quantity import Quantity
from deepstone.results.record import Identity
from deepstone.results.searched import InFinals, Round, Searched

H200 = Path(__file__).parents[2] / "results" / "h200"
SAME = {"alexnet-owt": {"torch": True, "jax": True}}


def texts(*arguments: Any, **options: Any) -> list[str]:
    found = statements(*arguments, **options)
    json.dumps(found, allow_nan=False)
    return [statement["text"] for statement in found]


def said(part: str, *arguments: Any, **options: Any) -> dict[str, Any]:
    """The one statement that holds these words."""
    found = [statement for statement in statements(*arguments, **options) if part in statement["text"]]
    assert len(found) == 1, texts(*arguments, **options)
    return found[0]


class TestSpeed:
    def test_how_fast_the_default_trains(self):
        records = rounds(40, 41, 42, batch=4)
        found = said("trains at", records)
        assert found["text"].startswith("alexnet-owt trains at 41.0 images/s (")
        assert "by default: torch 2.13.0, batch 4, fp32, NCHW, oneDNN, 2 threads." in found["text"]
        assert found["runs"] == [record["id"] for record in records]
        assert found["how"] == "median of 3 rounds in fresh processes, 95 % interval across them"
        assert "absent" in found["ratio"]

    @pytest.mark.parametrize(
        ("speeds", "why"), [((8, 300), "too few values"), ((0.01, 8, 4000), "too uneven"), ((40, 42), None)]
    )
    def test_an_interval_over_powers_of_ten_is_not_told(self, speeds: tuple[float, ...], why: str | None):
        text = said("trains at", rounds(*speeds, batch=4))["text"]
        assert (f"({why} for an interval)" in text) == (why is not None)
        assert ("–" in text) == (why is None)

    def test_a_base_that_is_not_the_default_is_not_called_so(self):
        assert (
            "images/s (39.8 – 40.2) with bf16-mixed: " in said("trains at", [run(40, precision="bf16-mixed")])["text"]
        )

    def test_forward_against_training(self):
        found = said("Forward alone", rounds(100, 100, 101) + rounds(310, 300, 306, phase="forward"))
        assert "a training step takes 3.0" in found["text"]
        assert found["ratio"]["median"] == pytest.approx(3.04, rel=0.01)
        assert len(found["runs"]) == 6

    def test_the_batch_at_which_it_stops_growing(self):
        records = [
            *rounds(50, 51, 49, batch=4),
            *rounds(100, 101, 99, batch=16),
            *rounds(101, 100, 100, batch=64),
        ]
        found = said("grows with the batch up to 16", records)
        assert "2.00x" in found["text"]
        assert "beyond it no growth was shown (batch 64: 1.01x" in found["text"]

    def test_a_speed_that_still_grows(self):
        records = rounds(1, 1, 1, batch=1) + rounds(2, 2, 2, batch=2) + rounds(4, 4, 4, batch=4)
        assert "batch 4 runs at 2.00x (2.00 – 2.00) the speed of batch 2" in said("still faster", records)["text"]

    def test_batches_that_vary_too_much_tell_nothing(self):
        records = rounds(1, 4, 9, batch=1) + rounds(9, 1, 4, batch=2) + rounds(2, 8, 5, batch=4)
        assert not [text for text in texts(records) if "grow" in text or "faster" in text]

    def test_a_few_samples_have_no_interval(self):
        assert "trains at about 40.0 images/s (3 samples only)" in said("trains at", [run(40, samples=3)])["text"]

    def test_a_speed_that_does_not_grow(self):
        records = rounds(4, 4, 4, batch=1) + rounds(4, 4, 4, batch=2) + rounds(4, 4, 4, batch=4)
        assert said("No batch size beyond 1", records)


class TestSettings:
    def test_both_directions(self):
        records = rounds(100, 101, 99) + rounds(45, 45, 46, engine="native") + rounds(150, 151, 152, layout="nhwc")
        slower = said("native kernels instead of oneDNN".capitalize()[:6], records)
        assert "Native kernels instead of oneDNN: alexnet-owt trains 0.450x (" in slower["text"]
        assert slower["how"] == "3 rounds of fresh processes in random order, paired within a round"
        assert "NHWC instead of NCHW: alexnet-owt trains 1.50x" in said("NHWC instead", records)["text"]

    def test_what_is_not_shown_is_said_in_one_sentence(self):
        records = rounds(100, 101, 99) + rounds(98, 100, 101, layout="nhwc") + rounds(103, 100, 101, threads=1)
        found = said("No difference from the default was shown in training alexnet-owt", records)
        assert "NHWC (" in found["text"]
        assert "1 thread (" in found["text"]
        assert not [text for text in texts(records) if "as fast" in text]
        assert len(found["runs"]) == 9, "the base counts once"

    def test_the_best_of_several_and_what_it_gives(self):
        records = [
            *rounds(100, 101, 99),
            *rounds(150, 151, 152, layout="nhwc"),
            *rounds(210, 211, 208, layout="nhwc", precision="bf16-mixed"),
        ]
        found = said("Best found for training alexnet-owt, of 3 setups: bf16-mixed with NHWC at 210 images/s", records)
        assert "2.10x (" in found["text"]
        assert statements(records)[0]["text"] == found["text"], "before the speed of the default"

    def test_none_better_than_the_default(self):
        records = rounds(100, 100, 100)
        for axis, value in (("layout", "nhwc"), ("engine", "native"), ("threads", 1)):
            records += rounds(50, 50, 50, **{axis: value})
        assert said("None of 3 other setups was shown to be faster than the default", records)

    def test_a_single_run_each_is_called_measured_apart(self):
        assert said("measured apart", [run(100), run(300, layout="nhwc")])
        assert not [text for text in texts([run(100), run(107, layout="nhwc")]) if "as fast" in text]

    def test_what_is_not_known_is_not_called_the_same(self):
        records = rounds(100, 150, 70) + rounds(150, 60, 130, layout="nhwc")
        assert "NHWC (" in said("Not decided in training alexnet-owt", records)["text"]
        assert not [text for text in texts(records) if "No difference" in text]

    def test_what_follows_a_setting_is_told(self):
        records = rounds(1, 1, 1) + rounds(9, 9, 9, engine="native", effective={"layout": "nhwc"})
        assert "NCHW became NHWC" in said("Native kernels", records)["how"]


class TestFirst:
    """What a report opens with: the strongest finding that is proven, and what to do about it."""

    def test_the_setup_that_is_proven_fastest(self):
        records = [
            *rounds(100, 101, 99),
            *rounds(45, 45, 46, engine="native"),
            *rounds(150, 151, 152, layout="nhwc"),
            *rounds(100, 900, 200, threads=1),  # may be faster still, but nothing is proven
        ]
        first, *others = statements(records)
        assert "1.50x" in first["text"]
        assert first["advice"].startswith("Use layout=nhwc: 1.50x (")
        assert first["advice"].endswith(") the default.")
        assert not any("advice" in other for other in others)
        assert "trains at" in others[0]["text"], "rates come after it"

    def test_a_small_gain_comes_before_a_large_loss(self):
        records = rounds(100, 100, 100) + rounds(110, 110, 110, layout="nhwc") + rounds(10, 10, 10, engine="native")
        assert statements(records)[0]["advice"].startswith("Use layout=nhwc: 1.10x")

    def test_a_loss_where_nothing_is_faster(self):
        records = rounds(100, 100, 100) + rounds(50, 50, 50, layout="nhwc") + rounds(20, 20, 20, threads=1)
        assert statements(records)[0]["advice"].startswith("Do not use threads=1 here: 0.200x")

    def test_a_lower_precision_is_not_for_every_training(self):
        records = rounds(100, 100, 100) + rounds(300, 300, 300, precision="bf16-mixed")
        advice = statements(records)[0]["advice"]
        assert advice.startswith("Use precision=bf16-mixed: 3.0")
        assert "if your training tolerates it (products in bf16" in advice

    def test_a_combination_that_was_measured(self):
        both = {"precision": "bf16-mixed", "layout": "nhwc", "compile": "default"}
        records = rounds(100, 101, 99) + rounds(120, 121, 119, layout="nhwc") + rounds(520, 522, 518, **both)
        first = statements(records)[0]
        assert first["advice"].startswith("Use precision=bf16-mixed layout=nhwc compile=default: 5.20x (5.1")
        assert len(first["runs"]) == 6

    def test_no_difference_at_all(self):
        records = rounds(100, 101, 99)
        for axis, value in (("layout", "nhwc"), ("engine", "native"), ("threads", 1)):
            records += rounds(99, 101, 100, **{axis: value})
        first = statements(records)[0]
        assert first["advice"] == "Keep the default."
        assert "None of 3 other setups" in first["text"]

    def test_intervals_that_leave_everything_open(self):
        records = rounds(20, 101, 300)
        for axis, value in (("layout", "nhwc"), ("engine", "native"), ("threads", 1)):
            records += rounds(250, 90, 30, **{axis: value})
        first = statements(records)[0]
        assert "measure again" in first["advice"]
        assert "faster or slower" in first["text"]

    def test_forward_is_no_training(self):
        records = [*rounds(100, 100, 100), *rounds(300, 300, 300, phase="forward")]
        records += rounds(900, 900, 900, phase="forward", layout="nhwc")
        assert not any("advice" in each for each in statements(records))

    def test_another_framework_counts_where_both_compute_the_same(self):
        records = [*rounds(100, 101, 99), *rounds(130, 131, 128, framework="jax")]
        assert statements(records, sameness=SAME)[0]["advice"].startswith("Use framework=jax: 1.30x (")
        assert not any("advice" in each for each in statements(records))


class TestFrameworks:
    RECORDS = (*rounds(100, 101, 99), *rounds(130, 131, 128, framework="jax", effective={"layout": "nhwc"}))

    def test_compared_where_they_are_known_to_compute_the_same(self):
        found = said("jax 2.13.0: alexnet-owt trains 1.30x", self.RECORDS, sameness=SAME)
        assert "Each with its own defaults (NHWC against NCHW)" in found["text"]
        assert "checked to compute the same" in found["text"]

    def test_a_framework_that_takes_fewer_threads_by_itself_is_told(self):
        records = [*rounds(100, 101, 99), *rounds(60, 61, 59, framework="jax", effective={"threads": 1})]
        found = said("jax 2.13.0: alexnet-owt trains 0.60", records, sameness=SAME)
        assert "Each with its own defaults (1 thread against 2 threads)" in found["text"]

    def test_the_state_of_a_study_may_say_so(self):
        assert said("trains 1.30x", self.RECORDS, state={"sameness": SAME})

    @pytest.mark.parametrize("sameness", [None, {}, {"alexnet-owt": {"torch": True}}, {"vgg11": {"jax": True}}])
    def test_otherwise_they_are_measured_and_not_compared(self, sameness: Any):
        found = said("Measured, not compared", self.RECORDS, sameness=sameness)
        assert "absent" in found["ratio"]
        assert "deepstone verify alexnet-owt framework=torch,jax" in found["text"]
        assert not [text for text in texts(self.RECORDS, sameness=sameness) if "as fast" in text]

    def test_frameworks_that_differ_are_not_compared_either(self):
        sameness = {"alexnet-owt": {"torch": True, "jax": False}}
        assert "they do not compute the same" in said("Measured, not", self.RECORDS, sameness=sameness)["text"]


class TestFindings:
    @staticmethod
    def peaks(machine_sha: str = "", threads: int = 2) -> Finding:
        """As a store has it; without a machine, as a command prints it."""
        rate = {"median": 1e11, "low": 0.9e11, "high": 1.1e11, "n": 5}
        copy = {"median": 1e10, "low": 0.9e10, "high": 1.1e10, "n": 5}
        entry = {
            "device": "cpu",
            "framework": "torch",
            "threads": threads,
            "flops_per_s": {"fp32": rate, "bf16": {"absent": "unsupported"}},
            "bytes_per_s": {"copy": copy},
        }
        found = Finding(schema=1, kind="peaks", content=convert({"peaks": [entry]}, Ceilings))
        if not machine_sha:
            return found
        identity = convert({**run()["identity"], "machine_sha": machine_sha}, Identity)
        return msgspec.structs.replace(found, id="peaks-1", identity=identity)

    def test_the_share_of_the_ceiling_has_both_intervals(self):
        record = run(4, batch=4, share=0.1)
        record["cost"]["flops"] = 50_000_000_000
        peaks = self.peaks(record["identity"]["machine_sha"])
        found = said("of the fastest fp32 matrix product", [record], [peaks])
        assert "reaches 50.0 % (40.9 – 61.1 %)" in found["text"]
        assert found["findings"] == ["peaks-1"]
        assert "100 GFLOP/s in fp32" in said("The ceilings of cpu with 2 threads", [record], [peaks])["text"]

    def test_a_share_is_never_more_than_all(self):
        """The best ceiling of the device counts; one that a run exceeds is too low."""
        record = run(4, batch=4, share=0.1)
        peaks = self.peaks(record["identity"]["machine_sha"])
        known = {"share": 1.15, "precision": "fp32", "peak_flops_per_s": 0.5e11, "measured_with": "torch@2"}
        for flops, told in (
            (96_000_000_000, "reaches 96.0 % (78.5 – 100 %) of"),
            (115_000_000_000, "too low a ceiling"),
        ):
            record["cost"]["flops"] = flops
            for share in (record["share_of_peak"], known):
                found = said("alexnet-owt with", [{**record, "share_of_peak": share}], [peaks])
                assert told in found["text"]
                assert "fastest fp32 matrix product" in found["text"]
        record["cost"]["flops"] = 57_500_000_000
        without = said("alexnet-owt with", [{**record, "share_of_peak": known}])["text"]
        assert "does 57.5 GFLOP/s, more than" in without
        assert "115 %" not in without

    def test_a_low_ceiling_is_no_reason_not_to_use_a_run(self):
        record = run(4, batch=4, doubts=["above_peak"])
        known = {"share": 1.15, "precision": "fp32", "peak_flops_per_s": 0.5e11}
        of_one = {**record, "share_of_peak": {**known, "measured_with": "torch@2.13.0"}}
        of_two = {**record, "share_of_peak": {**known, "measured_with": "jax@0.1, torch@2.13.0"}}
        assert not [text for text in texts([of_one]) if "Do not use these runs" in text]
        assert "too low a ceiling" in said("Some measurements are thin", [of_one])["text"]
        assert said("Do not use these runs", [of_two])

    def test_ceilings_as_a_command_printed_them_have_no_id(self):
        assert said("The ceilings of cpu with 2 threads", [], [self.peaks()])["findings"] == []

    def test_a_ceiling_of_other_threads_or_machines_is_none(self):
        record = run(4, batch=4)
        for peaks in (self.peaks(record["identity"]["machine_sha"], threads=1), self.peaks(sha("another"))):
            assert not [text for text in texts([record], [peaks]) if "of the fastest" in text]

    def test_where_the_time_goes(self):
        finding = {**json.loads((H200 / "layers-resnet50.json").read_text()), "id": "layers-1"}
        found = said("of the time in layers", [], [finding])
        assert found["text"].startswith("Convolutions take 77.9 % (")
        assert "batch norms 15.0 %" in found["text"]
        assert found["findings"] == ["layers-1"]

    def test_which_layers_take_most_must_be_certain(self):
        finding = json.loads((H200 / "layers-resnet50.json").read_text())
        for layer in finding["layers"]:
            for part in ("forward_s", "backward_s"):
                if "absent" not in layer[part]:
                    layer[part] |= {"low": layer[part]["median"] / 4, "high": layer[part]["median"] * 4}
        assert statements([], [finding]) == []

    def test_groups_are_those_of_the_finding(self):
        """The shares in the sentence must be those that `deepstone layers` prints."""
        report = json.loads((H200 / "layers-alexnet-owt.json").read_text())
        for number, framework in enumerate(report["frameworks"].values()):
            largest = max(framework["groups"], key=lambda group: group["share"])
            text = [text for text in texts([], [report]) if "of the time in layers" in text][number]
            assert f"{100 * largest['share']:.1f} % (" in text

    def test_a_finding_that_failed_says_nothing(self):
        failed = {
            "schema": 1,
            "kind": "layers",
            "id": "x",
            "outcome": "oom",
            "failure": {"reason": "no memory", "stderr_tail": ""},
        }
        assert statements([], [failed]) == []


class TestEnergy:
    def test_joules_an_image(self):
        record = run(4, batch=4)
        record["energy"] = {
            "joules": 800.0,
            "joules_per_step": 8.0,
            "samples_per_j": 0.5,
            "average_power_w": 8.0,
            "window_s": 100.0,
            "resolution_share": 0.05,
            "meters": [{"name": "nvml", "covers": "gpu 0, whole board", "joules": 800.0, "update_period_s": 0.1}],
        }
        assert "takes 2.00 J an image (1.90 – 2.10), whole board" in said("an image", [record])["text"]

    def test_no_meter_is_said_once(self):
        records = [run(), run(model="vgg11")]
        assert said("Energy was not measured: no counter on this machine.", records)


class TestShortfalls:
    def test_what_failed_is_named_by_reason(self):
        records = [run(), run(outcome="oom", batch=512), run(outcome="oom", batch=1024)]
        found = said("Could not be measured", records)
        assert "alexnet-owt batch=512 and alexnet-owt batch=1024 (oom: " in found["text"]

    def test_what_there_was_no_time_for_is_named(self):
        tasks = [
            {"title": "resnet50 batch=2 phase=train threads=auto", "state": "left out"},
            {"title": "cifarnet", "state": "done"},
            {"title": "cifarnet", "state": "left out"},
            {"title": "vgg11 batch=64", "state": "pruned", "why": "out of memory at batch=32"},
        ]
        state = {"tasks": tasks, "resume": "deepstone study quick"}
        assert said("no time", [], state=state)["text"] == (
            "There was no time for resnet50 batch=2, nor for all rounds of 1 other setup; "
            "`deepstone study quick` goes on."
        )
        assert "vgg11 batch=64 (out of memory at batch=32)" in said("Not tried", [], state=state)["text"]

    def test_doubts_come_first_where_they_touch_much(self):
        busy = rounds(1, 1, 1, doubts=["other_load"])
        assert "The machine was disturbed in 3 of 3 runs" in texts(busy)[1]
        few = [*rounds(*[1.0] * 9), *rounds(2, layout="nhwc", doubts=["other_load", "few_samples"])]
        found = said("The machine was disturbed in 1 of 10 runs", few)
        assert found["runs"] == [few[-1]["id"]]
        assert statements(few)[1]["text"].startswith("alexnet-owt trains")

    @pytest.mark.parametrize("code", DOUBT_CODES)
    def test_every_doubt_is_told(self, code: str):
        assert [text for text in texts([run(doubts=[code])]) if "1 of 1 runs" in text]


class TestAll:
    def test_the_most_important_first(self):
        ranks = [statement["rank"] for statement in statements(TestFrameworks.RECORDS, sameness=SAME)]
        assert ranks == sorted(ranks, reverse=True)

    def test_machines_are_named_where_there_are_several(self):
        found = [text for text in texts([run(1), run(50, machine="there", gpu=True)]) if "trains at" in text]
        assert "on here CPU, 2 cores:" in found[0]
        assert "on GPU of there:" in found[1]

    def test_nothing_measured_nothing_said(self):
        assert statements([]) == []

    def test_real_records_of_a_gpu(self):
        lines = [line for name in ("runs", "jax") for line in (H200 / f"{name}.jsonl").read_text().splitlines()]
        records = [json.loads(line) for line in lines]
        known = {record["id"] for record in records}
        found = statements(records)
        assert found
        for statement in found:
            assert statement["runs"]
            assert set(statement["runs"]) <= known
        assert "jax" in said("4.69x", records)["text"]


class TestOtherTraining:
    """A setup that `tune` refused is faster at nothing, and the report says that it was refused."""

    RECORDS = rounds(100, 101, 102) + rounds(200, 202, 204, layout="nhwc") + rounds(110, 111, 112, threads=1)

    def test_a_refused_setup_is_no_advice(self):
        refused = {self.RECORDS[4]["id"]: "gradients differ by 78 %"}
        found = statements(self.RECORDS, searched=Searched(refused=refused))
        assert "threads=1" in found[0]["advice"]
        about = [each["text"] for each in found if "layout=nhwc" in each["text"] or "NHWC" in each["text"]]
        assert len(about) == 1, about
        assert about[0].startswith("Other training than the default of alexnet-owt")
        assert "so not compared: layout=nhwc (gradients differ by 78 %)" in about[0]
        assert "layout=nhwc" in statements(self.RECORDS)[0]["advice"], "without the refusal"

    def test_what_a_search_did_not_prove_is_no_advice(self):
        unproven = {self.RECORDS[4]["id"]: "time ran out"}
        found = statements(self.RECORDS, searched=Searched(unproven=unproven))
        assert "threads=1" in found[0]["advice"]
        (about,) = [each["text"] for each in found if each["text"].startswith("NHWC instead of NCHW")]
        assert about.endswith("; not proven to be the same training: time ran out.")
        by_another = Searched(unproven=unproven, proven=frozenset([self.RECORDS[5]["id"]]))
        assert "layout=nhwc" in statements(self.RECORDS, searched=by_another)[0]["advice"]

    def test_steps_that_leave_arrays_alone_are_no_advice(self):
        training = {"losses": [[1, 3.0], [3, 2.6]], "early_change": 0.01, "arrays": 8, "moved": 8}
        records = [
            {**each, "training": {**training, "moved": 4 if each["setup"]["requested"]["layout"] == "nhwc" else 8}}
            for each in self.RECORDS
        ]
        found = statements(records)
        assert "threads=1" in found[0]["advice"]
        told = "so not compared: layout=nhwc (of 8 arrays, the early steps changed 4 in this setup and 8 in the base)."
        assert any(told in each["text"] for each in found)


class TestSearches:
    """The launches of a search are no rounds of anything, except its finals."""

    DEFAULT = looks(100, 101, 99, 20, 21, 22)
    FAST = looks(150, 151, 149, 190, 191, 192, layout="nhwc")
    GAIN = Quantity.of(median=9.0, low=8.0, high=10.0, n=3)

    def finals(self) -> Searched:
        """The last three launches of both are rounds."""
        return Searched(
            finals={
                each["id"]: InFinals(round=Round(search="a", number=number), is_default=gain is None, gain=gain)
                for several, gain in ((self.DEFAULT, None), (self.FAST, self.GAIN))
                for number, each in enumerate(several[3:], 1)
            }
        )

    def test_looks_are_not_rounds_and_advise_nothing(self):
        found = statements(self.DEFAULT[:3] + self.FAST[:3])
        assert found
        assert not any("round" in each["text"] + each["how"] for each in found)
        assert not any("advice" in each for each in found)

    def test_one_look_is_not_compared(self):
        found = statements(self.DEFAULT[:1] + self.FAST[:1])
        assert not any("ratio" in each and "median" in each["ratio"] for each in found)
        assert "(one launch of a search only)" in found[0]["text"]

    def test_only_the_finals_are_told_with_the_ratio_of_the_search(self):
        found = statements(self.DEFAULT + self.FAST, searched=self.finals())
        assert found[0]["advice"] == "Use layout=nhwc: 9.00x (8.00 – 10.0) the default."
        assert found[0]["how"].startswith("3 rounds of fresh processes in random order")
        assert found[0]["how"].endswith("in the finals of a search")
        assert set(found[0]["runs"]) == {each["id"] for each in self.DEFAULT[3:] + self.FAST[3:]}
        (speed,) = [each for each in found if each["text"].startswith("alexnet-owt trains at 21")]
        assert speed["how"].startswith("median of 3 rounds")

    def test_single_runs_are_no_further_round(self):
        """Each is its own first, like the first round of a study."""
        single = [run(10, minute=30), run(500, minute=31, layout="nhwc")]
        found = statements(self.DEFAULT + self.FAST + single, searched=self.finals())
        assert found[0]["advice"] == "Use layout=nhwc: 9.00x (8.00 – 10.0) the default."

    def test_rounds_of_a_study_count_beside_a_search(self):
        study = rounds(100, 101, 99, minute=30) + rounds(120, 121, 119, minute=30, layout="nhwc")
        found = statements(self.DEFAULT[:3] + self.FAST[:3] + study)
        assert found[0]["advice"].startswith("Use layout=nhwc: 1.20x")
