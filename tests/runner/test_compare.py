"""Two jobs against each other on the scripted backend: who wins, in which order they run, what a failure leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from factory import is_absent
from fake_jobs import SOON_S, Script, carrying, fake_job, seconds_until_gone

from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.measure.effort import Effort
from deepstone.measure.ratios import A_FASTER, B_FASTER, NO_DIFFERENCE
from deepstone.models.load import load_in_process
from deepstone.results.record import Draft
from deepstone.runner import compare as compare_module
from deepstone.runner.compare import (
    FEWEST_PAIRS,
    ROUNDS,
    Comparison,
    compare_jobs,
    fit_together,
)
from deepstone.runner.conversation import Conversation, talking_to_worker
from deepstone.runner.job import Job
from deepstone.store.store import Store

EFFORT = Effort(budget_s=4.0)
A = {"layout": "nchw"}
B = {"layout": "nhwc"}


def compared(a: dict[str, Any], b: dict[str, Any], *, pairs: int | None = 2, **options: Any) -> Both:
    return Both(compare_jobs([fake_job(**a), fake_job(**b)], EFFORT, groups=pairs, seed=1, **options))


class Both:
    """A comparison of two sides, and what it says of them."""

    def __init__(self, found: Comparison) -> None:
        self.a, self.b = found.sides
        self.time_ratio = found.ratios[0].time_ratio if found.ratios else None
        self.verdict = found.ratios[0].verdict if found.ratios else ""
        self.pairing, self.refusal, self.stopped = found.pairing, found.refusal, found.stopped


class Starts:
    """Which workers were started, in which order, and how many lived at once."""

    def __init__(self) -> None:
        self.layouts: list[str] = []
        self.largest_live_set = 0
        self._alive = 0

    @contextmanager
    def watch(self, job: Job, *, timeout_s: float) -> Iterator[Conversation]:
        self.layouts.append(str(job.request["layout"]))
        self._alive += 1
        self.largest_live_set = max(self.largest_live_set, self._alive)
        with talking_to_worker(job, timeout_s=timeout_s) as conversation:
            yield conversation
        self._alive -= 1


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    starts = Starts()
    monkeypatch.setattr(compare_module, "talking_to", starts.watch)
    return starts


class TestVerdict:
    def test_identical_setups_show_no_difference(self, script: Script, store: Store):
        """Launches of one setup that differ by some 4 %, as real ones do."""
        script(noise=0.02, launch_noise=0.04)
        found = compared({}, {}, pairs=FEWEST_PAIRS)
        assert found.verdict == NO_DIFFERENCE
        assert found.time_ratio is not None
        assert found.time_ratio.n == FEWEST_PAIRS
        assert found.time_ratio.low <= 1.02
        assert found.time_ratio.high >= 1 / 1.02
        a, b = (store.get(store.add(draft).id).to_json() for draft in (found.a, found.b) if draft is not None)
        assert a["job"] == b["job"]
        assert a["comparison"] == {
            "side": "a",
            "other_job": b["job"],
            "ratio": found.time_ratio.to_json(),
            "verdict": NO_DIFFERENCE,
            "pairs": FEWEST_PAIRS,
            "pairing": "together",
            "sameness": {"absent": "both sides run the same framework"},
            "stopped": f"{FEWEST_PAIRS} pairs, as asked for",
        }
        assert b["comparison"]["side"] == "b"
        assert len(a["samples"]["launches"]) == len(b["samples"]["launches"]) == FEWEST_PAIRS

    @pytest.mark.parametrize(("slow", "winner", "ratio"), [("nchw", B_FASTER, 1.2), ("nhwc", A_FASTER, 1 / 1.2)])
    def test_the_faster_side_wins(self, script: Script, slow: str, winner: str, ratio: float):
        script(noise=0.02, launch_noise=0.005, by={f"layout={slow}": {"step_s": 0.012}})
        found = compared(A, B, pairs=3)
        assert found.verdict == winner
        assert found.time_ratio is not None
        assert found.time_ratio.median == pytest.approx(ratio, rel=0.03)

    def test_batches_are_compared_by_the_time_of_a_sample(self, script: Script):
        """The same time for a step of twice as many samples."""
        script(noise=0.01)
        found = compared({"batch": 8}, {"batch": 16})
        assert found.time_ratio is not None
        assert found.time_ratio.median == pytest.approx(2.0, rel=0.03)
        assert found.verdict == B_FASTER

    def test_pairs_that_agree_are_few(self, script: Script):
        script(noise=0.002, launch_noise=0.0003)
        found = compared({}, {}, pairs=None)
        assert found.time_ratio is not None
        assert found.time_ratio.n <= 4
        assert found.stopped == f"settled after {found.time_ratio.n} of at most 12 pairs"
        assert found.verdict == NO_DIFFERENCE

    def test_pairs_that_disagree_are_many(self, script: Script):
        script(noise=0.01, launch_noise=0.06)
        found = compared({}, {}, pairs=None)
        assert found.time_ratio is not None
        assert str(found.time_ratio.n) in found.stopped
        assert found.time_ratio.n > 4

    def test_a_winner_by_a_wide_interval_takes_more_pairs(self, script: Script):
        """Launches that differ by a third say who is faster after three pairs, and hardly by how much."""
        script(noise=0.01, launch_noise=0.3, by={"layout=nchw": {"step_s": 0.4}})
        found = compared(A, B, pairs=None)
        assert found.time_ratio is not None
        assert found.verdict == B_FASTER
        assert found.time_ratio.n > 3
        assert found.time_ratio.n == 12 or found.time_ratio.high <= 2 * found.time_ratio.low

    def test_three_sides_are_judged_pair_by_pair_and_ranked(self, script: Script):
        script(noise=0.002, launch_noise=0.0003, by={"layout=nhwc": {"step_s": 0.008}})
        jobs = [fake_job(**A), fake_job(**B), fake_job(**A, seed=3)]
        found = compare_jobs(jobs, EFFORT, seed=1)
        assert [ratio.verdict for ratio in found.ratios] == ["b faster", NO_DIFFERENCE, "b faster"]
        assert [sorted(rank) for rank in found.ranks] == [[1], [0, 2]]
        records = [draft.comparison for draft in found.sides if draft is not None]
        assert [record.side for record in records if not isinstance(record, Absent)] == ["a", "b", "c"]

    def test_warmup_does_not_count(self, script: Script):
        """One side takes its time to get going, but in the end both are alike."""
        script(noise=0.005, by={"layout=nhwc": {"warmup": [50, *(3 - 0.1 * step for step in range(20))]}})
        found = compared(A, B)
        assert found.verdict == NO_DIFFERENCE
        assert found.time_ratio is not None
        assert found.time_ratio.median == pytest.approx(1.0, abs=0.01)


class TestTraining:
    """No winner among steps that are not shown to do the same training, though both ran well."""

    @pytest.mark.parametrize(
        "fault",
        [
            {"updates": 0},
            {"updates": 2},
            {"updates": 60},
            {"update_size": 0.5},
            {"update_size": 3.0},
            {"loss": 2.0},
        ],
        ids=str,
    )
    def test_a_side_that_leaves_out_work_does_not_win(self, script: Script, fault: dict[str, float]):
        script(by={"layout=nhwc": {"step_s": 0.005, **fault}})
        found = compared(A, B)
        assert found.time_ratio is None
        assert found.refusal
        assert found.a is not None
        assert found.b is not None
        codes = [{doubt["code"] for doubt in side["doubts"]} for side in map(Draft.to_json, (found.a, found.b))]
        assert "not_training" not in codes[0]
        assert ("not_training" in codes[1]) == ("updates" in fault)

    def test_both_sides_leave_out_the_same(self, script: Script):
        script(updates=0, by={"layout=nhwc": {"step_s": 0.005}})
        assert compared(A, B).time_ratio is None

    @pytest.mark.parametrize("other", [{"batch": 16}, {"optimizer": "adam"}, {"seed": 7}], ids=str)
    def test_another_training_need_not_go_the_same_way(self, script: Script, other: dict[str, Any]):
        script(by={"layout=nhwc": {"step_s": 0.005, "update_size": 3.0}})
        assert compared(A, {**B, **other}).time_ratio is not None


class TestOrder:
    def test_fresh_pairs_begin_with_either_side_in_turn(self, starts: Starts):
        compared(A, B, pairs=3)
        assert starts.layouts == ["nchw", "nhwc", "nhwc", "nchw", "nchw", "nhwc"]
        assert starts.largest_live_set == 2

    def test_blocks_come_in_random_order_and_every_round_has_both(self, monkeypatch: pytest.MonkeyPatch):
        order: list[str] = []
        measure = compare_module._round

        def watch(side: Any, *, last: bool) -> None:
            order.append(side.job.request["layout"])
            measure(side, last=last)

        monkeypatch.setattr(compare_module, "_round", watch)
        found = compared(A, B)
        rounds = [tuple(order[start : start + 2]) for start in range(0, len(order), 2)]
        assert len(rounds) == 2 * ROUNDS
        for pair in (rounds[:ROUNDS], rounds[ROUNDS:]):
            assert set(pair) == {("nchw", "nhwc"), ("nhwc", "nchw")}
        assert found.a is not None
        for launch in found.a.to_json()["samples"]["launches"]:
            blocks = launch["ranks"][0]["blocks"]
            warmup = sum(len(block["step_s"]) * block["steps_per_sample"] for block in blocks[:-ROUNDS])
            assert launch["warmup_steps"] == warmup > 0

    def test_processes_alternate_where_memory_does_not_take_both(
        self, starts: Starts, script: Script, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(compare_module, "fit_together", lambda _a, _b: False)
        script(noise=0.01, by={"layout=nchw": {"step_s": 0.012}})
        found = compared(A, B, pairs=3)
        assert starts.largest_live_set == 1
        assert starts.layouts == ["nchw", "nhwc", "nhwc", "nchw", "nchw", "nhwc"]
        assert found.pairing == "alternating processes"
        assert found.verdict == B_FASTER
        for draft in (found.a, found.b):
            assert draft is not None
            assert draft.comparison.pairing == "alternating processes"

    def test_progress_goes_forward(self):
        told: list[float] = []
        compared(A, B, on_progress=lambda _stage, share: told.append(share))
        assert told == sorted(told)
        assert 0 <= min(told) <= max(told) <= 1


class TestFailure:
    def test_a_side_that_crashes_is_told_and_its_samples_kept(
        self, script: Script, store: Store, marked_processes: str
    ):
        script(by={"layout=nhwc": {"fault": {"at": "step", "step": 60, "kind": "segfault"}}})
        found = compared(A, B)
        assert (found.time_ratio, found.verdict) == (None, "")
        assert found.a is None  # nothing of it was finished
        assert found.b is not None
        record = store.add(found.b).to_json()
        assert (record["outcome"], record["failure"]["signal"]) == ("crashed", "SIGSEGV")
        assert len(record["samples"]["launches"]) == 1
        assert seconds_until_gone(marked_processes) < SOON_S

    def test_what_the_other_side_finished_is_kept(self, script: Script, store: Store):
        def break_the_second_pair(stage: str, _share: float) -> None:
            if stage.startswith("pair 1") and stage.endswith("measuring"):
                script(by={"layout=nhwc": {"fault": {"at": "step", "step": 60, "kind": "exit"}}})

        found = compared(A, B, on_progress=break_the_second_pair)
        assert found.time_ratio is None
        assert found.a is not None
        assert found.b is not None
        a, b = store.add(found.a).to_json(), store.add(found.b).to_json()
        assert a["outcome"] == "ok"
        assert len(a["samples"]["launches"]) == 1
        assert not is_absent(a["summary"])
        assert (b["outcome"], b["failure"]["exit_code"]) == ("crashed", 7)
        assert len(b["samples"]["launches"]) == 2

    def test_a_side_that_cannot_be_starts_no_worker(self, starts: Starts):
        found = compared({}, {"device": "cpu", "engine": "cudnn"})
        assert starts.layouts == []
        assert found.a is None
        assert found.b is not None
        assert found.b.outcome == "unsupported"

    def test_a_side_that_did_something_else_is_unsupported(self, script: Script):
        script(effective={"layout": "nchw"})
        found = compared(A, B)
        assert found.b is not None
        assert found.b.failure.reason == "asked for layout=nhwc, but got nchw"

    def test_a_diverged_side_names_no_winner(self, script: Script, store: Store):
        script(by={"layout=nhwc": {"loss": "nan"}})
        found = compared(A, B)
        assert found.time_ratio is None
        assert found.b is not None
        record = store.add(found.b).to_json()
        assert record["outcome"] == "diverged"
        assert not is_absent(record["summary"])

    def test_what_is_missing_is_raised(self, script: Script, marked_processes: str):
        script(by={"layout=nhwc": {"fault": {"at": "build", "kind": "missing"}}})
        with pytest.raises(MissingError, match="install it"):
            compared(A, B)
        assert carrying(marked_processes) == []


class TestFitting:
    def test_small_jobs_do(self):
        assert fit_together(fake_job(device="cpu"), fake_job(device="cpu"))

    def test_giants_do_not(self):
        giant = fake_job(device="cpu", batch=2**20)
        heavy = Job(
            model=load_in_process("resnet152"),
            request=giant.request,
            environment=giant.environment,
            machine=giant.machine,
            command=giant.command,
        )
        assert not fit_together(heavy, heavy)
