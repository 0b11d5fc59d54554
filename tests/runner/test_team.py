"""Several processes of one job, on the scripted backend: what becomes of their answers, and who is blamed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from fake_jobs import MARK_VARIABLE, SOON_S, Script, carrying, fake_job, seconds_until_gone
from hypothesis import given
from hypothesis import strategies as st
from memory_kills import no_kill_meanwhile
from msgspec.structs import replace
from worker_trees import read_bytes

from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.measure.doubts import around_the_network
from deepstone.measure.effort import Effort
from deepstone.measure.energy.base import Meter
from deepstone.results import codec
from deepstone.results.parallel import Wire
from deepstone.results.quantity import Quantity
from deepstone.runner import team
from deepstone.runner.blame import RankFailure, blamed
from deepstone.runner.communication import communication_of, ladder_turns
from deepstone.runner.conversation import JobFailed
from deepstone.runner.replies import BlockTimes
from deepstone.runner.run import run_job
from deepstone.runner.team import of_the_job, rank_jobs
from deepstone.runner.turns import LEAST_ROUNDS, ROUNDS, in_turn, turns_within
from deepstone.runner.wire import Window, hidden_by_others, needed_bytes, sent_per_step
from deepstone.setups.axes import PLACEMENTS, Value
from deepstone.setups.world import placed_on
from deepstone.store.store import Store

QUICK = Effort(budget_s=0.5, timeout_s=120.0)


@pytest.fixture
def run(store: Store):
    def run(effort: Effort = QUICK, **axes: Value) -> Any:
        return store.get(store.add(run_job(fake_job(**{"processes": 2, **axes}), effort)).id).to_json()

    return run


def block(start_s: float, *step_s: float, steps_per_sample: int = 1) -> BlockTimes:
    total_s = sum(step_s) * steps_per_sample
    return BlockTimes(
        start_s=start_s, steps_per_sample=steps_per_sample, step_s=list(step_s), enqueue_s=total_s, total_s=total_s
    )


class TestStepsOfTheJob:
    def test_a_step_ends_when_the_last_rank_has_ended_it(self):
        found = of_the_job([block(0.0, 1.0, 1.0, 1.0), block(0.0, 2.0, 0.5, 0.6)])
        assert found.step_s == pytest.approx([2.0, 0.5, 0.6])
        assert found.total_s == pytest.approx(3.1)

    def test_jitter_that_alternates_is_not_counted_twice(self):
        """The longest duration of each step would say 2, 2; both ranks were done after 3."""
        assert sum(of_the_job([block(0.0, 1.0, 2.0), block(0.0, 2.0, 1.0)]).step_s) == pytest.approx(3.0)

    def test_it_begins_when_all_are_there(self):
        found = of_the_job([block(10.0, 1.0), block(10.4, 0.6)])
        assert (found.start_s, found.step_s) == (10.4, [pytest.approx(0.6)])

    @given(
        st.integers(1, 5).flatmap(
            lambda n: st.lists(st.lists(st.floats(1e-6, 10), min_size=n, max_size=n), min_size=1, max_size=4)
        ),
        st.integers(1, 3),
    )
    def test_the_job_takes_as_long_as_its_slowest_rank(self, ranks: list[list[float]], steps_per_sample: int):
        found = of_the_job([block(0.0, *steps, steps_per_sample=steps_per_sample) for steps in ranks])
        longest_s = max(sum(steps) for steps in ranks) * steps_per_sample
        assert sum(found.step_s) * steps_per_sample == pytest.approx(longest_s)
        assert found.total_s == pytest.approx(longest_s)
        assert all(step_s >= 0 for step_s in found.step_s)


class TestCommunication:
    def test_what_is_planted_is_found(self):
        """Rank 1 is 4 ms slower; meeting costs 1 ms, and the exchange 3 ms more."""

        def times(seconds: float) -> list[list[float]]:
            return [[seconds] * 3] * 4

        of_ranks = [
            {"local": times(0.010), "meet": times(0.015), "train": times(0.018), "exchange": times(0.006)},
            {"local": times(0.014), "meet": times(0.015), "train": times(0.018), "exchange": times(0.006)},
        ]
        found = communication_of(of_ranks[1], of_ranks)
        assert isinstance(found.meeting_s, Quantity)
        assert isinstance(found.hidden_share, Quantity)
        assert found.meeting_s.median == pytest.approx(0.001)
        assert [each.median for each in found.waiting_s] == pytest.approx([0.004, 0.0])
        assert found.exposed_s.median == pytest.approx(0.004)
        assert found.hidden_share.median == pytest.approx(1 - 4 / 6)

    def test_what_is_planted_lies_in_every_interval(self):
        """Each step varies by 5 %, and each round as a whole by 20 %: that is the same for all programs of a round."""
        random = np.random.default_rng(1)
        planted = {"local": (0.010, 0.014), "meet": (0.015, 0.015), "train": (0.018, 0.018), "exchange": (0.006, 0.006)}
        rounds = random.normal(1, 0.2, size=16).clip(0.5)

        def times(seconds: float) -> list[list[float]]:
            return [list(seconds * slow * random.normal(1, 0.05, size=5)) for slow in rounds]

        of_ranks = [{name: times(each[rank]) for name, each in planted.items()} for rank in range(2)]
        found = communication_of(of_ranks[1], of_ranks)
        assert isinstance(found.meeting_s, Quantity)
        assert isinstance(found.hidden_share, Quantity)
        expected = [
            (found.exposed_s, 0.004),
            (found.meeting_s, 0.001),
            (found.waiting_s[0], 0.004),
            (found.hidden_share, 1 / 3),
        ]
        for quantity, value in expected:
            assert quantity.low <= value <= quantity.high
            assert 0 < quantity.high - quantity.low < 2 * value

    @pytest.mark.parametrize(
        ("step_s", "budget_s", "expected"),
        [
            (0.001, 20.0, (8, 312, 1)),
            (0.1, 20.0, (8, 3, 1)),
            (0.2, 20.0, (8, 1, 1)),
            (0.1, 1.0, (10, 1, 0)),
            (1.0, 20.0, (3, 1, 0)),
            (3.0, 5.0, (2, 1, 0)),
        ],
    )
    def test_long_steps_get_fewer_turns(self, step_s: float, budget_s: float, expected: tuple[int, int, int]):
        """So that a step of 3 s does not take five minutes for it."""
        turns = ladder_turns(step_s, budget_s)
        assert (turns.rounds, turns.steps, turns.untimed) == expected


class TestTurns:
    @given(st.floats(1e-5, 100), st.floats(0.05, 1000), st.integers(1, 5), st.floats(0.1, 0.7), st.floats(0.75, 1.5))
    def test_they_keep_to_the_limit_or_are_the_fewest(
        self, step_s: float, budget_s: float, programs: int, share: float, limit: float
    ):
        turns = turns_within(step_s, programs=programs, share_s=share * budget_s, limit_s=limit * budget_s)
        took_s, limit_s = turns.seconds(step_s, programs), max(limit * budget_s, 4.0)
        assert turns.over_limit_s == pytest.approx(max(0.0, took_s - limit_s), abs=1e-9)
        if turns.over_limit_s:
            assert (turns.rounds, turns.steps, turns.untimed) == (LEAST_ROUNDS, 1, 0)
        assert turns.are_long or turns.rounds == ROUNDS
        assert turns.rounds >= LEAST_ROUNDS
        assert turns.steps >= 1

    def test_another_program_is_first_in_every_round(self):
        assert [in_turn(("a", "b", "c"), turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]


class TestLongSteps:
    """Steps of 3 s, by a scripted clock."""

    def test_what_cannot_be_resolved_is_absent_with_the_budget_that_would_do(self, run, script: Script):
        script(noise=0.001, step_s=3.0, warmup=[])
        parallel = run(Effort(budget_s=20.0, timeout_s=120.0))["parallel"]
        assert "--budget" in parallel["communication"]["account"]["absent"]
        assert "absent" in parallel["communication"]["logged"]
        assert [lane["rank"] for lane in parallel["timeline"]["lanes"]] == [0, 1]
        exposed = parallel["communication"]["exposed_s"]
        assert exposed["n"] == LEAST_ROUNDS
        assert exposed["low"] <= 0.9 <= exposed["high"]

    def test_a_budget_as_large_as_asked_for_resolves_it(self, run, script: Script):
        script(noise=0.001, step_s=3.0, warmup=[])
        absent = run(Effort(budget_s=20.0, timeout_s=120.0))["parallel"]["communication"]["account"]["absent"]
        budget_s = float(absent.split()[-1])
        parallel = run(Effort(budget_s=budget_s, timeout_s=120.0))["parallel"]
        assert parallel["communication"]["account"]["total_s"]["median"] == pytest.approx(0.9, rel=0.05)

    def test_they_keep_to_three_budgets_or_the_fewest_steps(self, store: Store, script: Script):
        """All steps that the worker made, as the scripted clock counts them."""
        script(noise=0.001, step_s=3.0, warmup=[])
        events: list[tuple[str, float]] = []
        draft = run_job(fake_job(processes=2), Effort(budget_s=60.0, timeout_s=120.0), lambda *e: events.append(e))
        (launch,) = draft.samples.launches
        assert [stage for stage, _ in events][-1] == "timeline"
        assert sum(len(block.step_s) for block in launch.ranks[0].blocks) * 3.0 <= 60.0 + 3 * 3.0

    @pytest.mark.parametrize(("least", "samples"), [(5, 6), (3, 3)])
    def test_one_of_several_rounds_needs_fewer_samples(self, run, script: Script, least: int, samples: int):
        script(noise=0.001, step_s=3.0, warmup=[])
        record = run(Effort(budget_s=1.0, phases=False, least_samples=least))
        assert record["summary"]["step_s"]["n"] == samples
        assert record["samples"]["warmup_steps"] == 2
        assert "few_samples" in {doubt["code"] for doubt in record["doubts"]}
        assert "not_training" not in {doubt["code"] for doubt in record["doubts"]}

    def test_without_phases_only_rate_and_memory_are_measured(self, run, script: Script):
        script(noise=0.001)
        record = run(Effort(budget_s=0.5, phases=False))
        assert record["outcome"] == "ok"
        for part in (record["phases"], record["parallel"]["communication"], record["parallel"]["wire"]):
            assert part == {"absent": "not asked for in this run"}
        assert record["parallel"]["timeline"] == {"absent": "not asked for in this run"}
        assert record["parallel"]["rates"]["total"]["median"] > 0
        assert all(rank["step_bytes"] != {"absent": "not measured in this run"} for rank in record["parallel"]["ranks"])


def window(sent_bytes: float, *, steps: int) -> Window:
    return Window(sent_bytes=sent_bytes, took_s=1.0, steps=steps)


class TestWire:
    def test_what_an_all_reduce_needs(self):
        assert needed_bytes([600, 400], processes=2, nodes=1) == 2000  # each of two sends all of it
        assert needed_bytes([1000], processes=4, nodes=1) == 6000
        assert needed_bytes([1000], processes=4, nodes=2) == 3000  # one of each node sends to the other

    def test_a_burst_of_others_is_left_out(self):
        own = [window(4000, steps=4), window(40_000, steps=4), window(4004, steps=4)]
        idle = [Window(sent_bytes=0, took_s=0.5), Window(sent_bytes=90_000, took_s=0.5)]
        assert sent_per_step(own, idle) == 1000
        assert hidden_by_others(own, idle, needed=1000) == ""

    def test_a_steady_stream_of_others_is_subtracted(self):
        own = [window(4000 + 700, steps=4), window(4000 + 710, steps=4)]
        idle = [Window(sent_bytes=350, took_s=0.5), Window(sent_bytes=356, took_s=0.5)]
        assert sent_per_step(own, idle) == pytest.approx(1000)

    def test_others_that_never_pause_make_it_unknown(self):
        own = [window(39_000, steps=4), window(52_000, steps=4), window(45_000, steps=4)]
        idle = [Window(sent_bytes=900, took_s=1.0)] * 3
        assert "9.53 times" in hidden_by_others(own, idle, needed=1000)

    def test_others_that_pause_only_while_we_send_make_it_unknown(self):
        own = [window(4000, steps=4), window(9000, steps=4)]
        idle = [Window(sent_bytes=5000, took_s=1.0), Window(sent_bytes=8000, took_s=1.0)]
        assert sent_per_step(own, idle) == 0
        assert "0 times" in hidden_by_others(own, idle, needed=1000)

    def test_a_transport_that_sends_more_is_told_where_nobody_else_sends(self):
        own, idle = [window(8000, steps=4), window(8010, steps=4)], [Window(sent_bytes=20, took_s=1.0)] * 2
        assert hidden_by_others(own, idle, needed=1000) == ""
        assert sent_per_step(own, idle) == pytest.approx(2000, rel=0.01)

    def test_so_is_one_that_sends_less(self):
        own, idle = [window(40, steps=4), window(41, steps=4)], [Window(sent_bytes=2, took_s=1.0)] * 2
        assert hidden_by_others(own, idle, needed=1000) == ""

    def test_what_goes_around_the_network_is_told_between_nodes(self):
        little = Wire(sent_bytes=10, needed_bytes=1000, ratio=0.01)
        found = around_the_network(little, 2)
        assert found is not None
        assert found.code == "around_the_network"
        assert around_the_network(little, 1) is None
        assert around_the_network(Wire(sent_bytes=1003, needed_bytes=1000, ratio=1.003), 2) is None


class TestRanks:
    def test_cores_are_shared_out(self):
        jobs = rank_jobs(fake_job(processes=2))
        cores = jobs[0].machine.usable_cores
        assert [job.request["threads"] for job in jobs] == [max(1, cores // 2)] * 2
        assert [job.request["threads"] for job in rank_jobs(fake_job(processes=2, threads=3))] == [3, 3]

    def test_every_rank_has_a_gpu_of_its_own(self):
        assert [job.request["device"] for job in rank_jobs(fake_job(processes=3, device="gpu:0", batch=9))] == [
            "gpu:0",
            "gpu:1",
            "gpu:2",
        ]

    @pytest.mark.parametrize("device", ["auto", "gpu:0"])
    def test_too_few_gpus_are_one_clear_line(self, run, script: Script, device: str):
        script(gpus=1)
        with pytest.raises(MissingError, match=r"gpu:1: rank 1 is process 2 of its node.*sees 1 GPU") as caught:
            run(device=device)
        assert caught.value.exit_code == 4
        assert "\n" not in str(caught.value)

    def test_as_many_gpus_as_processes(self, run, script: Script):
        script(gpus=2)
        record = run(device="gpu:0")
        assert [rank["device"] for rank in record["parallel"]["ranks"]] == ["gpu:0", "gpu:1"]


class OfBoard(Meter):
    """A board that takes 3 J from one reading to the next."""

    update_period_s = 1e-9

    def __init__(self, uuid: str | None) -> None:
        self.name, self.covers = "nvml", f"gpu {uuid}, whole board"
        self._joules = 0.0

    def read_j(self) -> float:
        self._joules += 3.0
        return self._joules

    def close(self) -> None:
        """Nothing is open."""


class TestEnergy:
    @pytest.fixture(autouse=True)
    def boards(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def open_meter(*, gpu_index: int, gpu_uuid: str | None) -> Meter | Absent:
            return Absent("no energy counter") if gpu_uuid == "GPU-old" else OfBoard(gpu_uuid)

        monkeypatch.setattr("deepstone.measure.energy.window.open_nvml_meter", open_meter)

    def energy(self, run: Any, script: Script, *uuids: str | None) -> Any:
        details = {str(n): {"details": {"gpu_uuid": uuid} if uuid else {}} for n, uuid in enumerate(uuids)}
        script(gpus=2, ranks=details)
        return run(device="gpu:0")["energy"]

    def test_it_is_that_of_the_boards_of_all_processes(self, run, script: Script):
        energy = self.energy(run, script, "GPU-0", "GPU-1")
        assert [meter["covers"] for meter in energy["meters"]] == ["gpu GPU-0, whole board", "gpu GPU-1, whole board"]
        assert energy["joules"] == 6.0
        steps = energy["joules"] / energy["joules_per_step"]
        assert energy["samples_per_j"] == pytest.approx(8 * steps / 6.0)

    def test_a_board_that_processes_share_counts_once(self, run, script: Script):
        assert self.energy(run, script, "GPU-0", "GPU-0")["joules"] == 3.0

    @pytest.mark.parametrize(("uuid", "why"), [("GPU-old", "no energy counter"), (None, "does not tell which")])
    def test_with_one_board_missing_it_is_absent(self, run, script: Script, uuid: str | None, why: str):
        assert why in self.energy(run, script, "GPU-0", uuid)["absent"]


class TestPlacement:
    @pytest.mark.parametrize(
        ("placement", "threads", "per_node", "cpus"),
        [
            ("compact", 2, 2, [[0, 1], [2, 3]]),
            ("spread", 2, 2, [[0, 4], [2, 6]]),
            ("spread", 1, 4, [[0], [2], [4], [6]]),
            ("none", 2, 2, [list(range(8))] * 2),
            ("compact", 8, 2, [list(range(8))] * 2),  # they share
            ("compact", 3, 1, [[0, 1, 2]]),
        ],
    )
    def test_cores_of_each_process(self, placement: str, threads: int, per_node: int, cpus: list[list[int]]):
        found = [placed_on(placement, range(8), threads, local_rank=r, per_node=per_node) for r in range(per_node)]
        assert found == cpus

    @given(st.sampled_from(PLACEMENTS), st.integers(1, 70), st.integers(1, 9), st.integers(1, 9))
    def test_no_two_processes_share_a_core_where_there_are_enough(
        self, placement: str, cores: int, threads: int, per_node: int
    ):
        ranks = [placed_on(placement, range(cores), threads, local_rank=r, per_node=per_node) for r in range(per_node)]
        assert all(set(cpus) <= set(range(cores)) and len(set(cpus)) == len(cpus) > 0 for cpus in ranks)
        if placement != "none" and threads * per_node <= cores:
            assert all(len(cpus) == threads for cpus in ranks)
            assert len({cpu for cpus in ranks for cpu in cpus}) == threads * per_node

    def test_a_rank_is_told_its_own(self):
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            pytest.skip("needs two cores")
        found = [job.request["affinity"] for job in rank_jobs(fake_job(processes=2, threads=1, affinity="compact"))]
        assert found == [str(usable[0]), str(usable[1])]


class TestRecord:
    def test_what_it_holds(self, run, script: Script):
        script(noise=0.001)
        record = run()
        assert record["outcome"] == "ok"
        assert record["summary"]["step_s"]["median"] == pytest.approx(0.01, rel=0.02)
        assert record["setup"]["effective"]["processes"]["value"] == 2
        assert record["setup"]["effective"]["batch"]["value"] == 8
        parallel = record["parallel"]
        assert (parallel["world"], parallel["local_batch"], parallel["nodes"]) == (2, 4, 1)
        assert [rank["rank"] for rank in parallel["ranks"]] == [0, 1]
        assert parallel["rates"]["total"] == record["summary"]["samples_per_s"]
        per_process = parallel["rates"]["per_process"]
        assert per_process["low"] <= per_process["median"] == pytest.approx(4 / 0.01, rel=0.02)
        (host,) = parallel["hosts"]
        assert (host["ranks"], host["node"], host["machine"]) == ([0, 1], 0, 0)
        assert [rank["role"] for rank in parallel["ranks"]] == ["worker", "worker"]
        assert [rank["clock"]["error_s"] for rank in parallel["ranks"]] == [0, 0]
        assert parallel["communication"]["exposed_s"]["median"] == pytest.approx(0.003, rel=0.1)
        assert record["phases"]["communication_s"] == parallel["communication"]["exposed_s"]

    def test_servers_are_processes_beside_the_world(self, run):
        record = run(scheme="server", servers=2)
        parallel = record["parallel"]
        assert (parallel["world"], parallel["servers"], parallel["local_batch"]) == (2, 2, 4)
        assert [rank["role"] for rank in parallel["ranks"]] == ["worker", "worker", "server", "server"]
        assert parallel["rates"]["per_process"]["median"] == pytest.approx(parallel["rates"]["total"]["median"] / 2)

    def test_a_pipeline_shares_no_batch_and_its_stages_wait(self, run, script: Script):
        """Of 10 ms, which steps begin apart here, the first stage computes 4 and the second one 3."""
        first = [["forward 0 0", 0.0, 0.001], ["backward 0 0", 0.002, 0.004], ["update", 0.004, 0.005]]
        second = [["forward 1 0", 0.001, 0.0015], ["backward 1 0", 0.0015, 0.002], ["update", 0.002, 0.004]]
        second.append(["reduce", 0.004, 0.005, 8])
        script(ranks={"0": {"timeline": {"train": first}}, "1": {"timeline": {"train": second}}})
        parallel = run(scheme="pipeline", microbatches=1)["parallel"]
        assert parallel["local_batch"] == 8
        bubbles = parallel["bubbles"]
        assert [rank["median"] for rank in bubbles["ranks"]] == pytest.approx([0.6, 0.7])
        assert bubbles["share"]["median"] == pytest.approx(0.65)
        assert bubbles["ideal_share"] == pytest.approx(0.5)
        assert bubbles["exposed_s"]["median"] == pytest.approx(0.010 - 0.005)
        spans = parallel["timeline"]["lanes"][1]["spans"]
        assert [(span["kind"], span.get("stage"), span.get("microbatch")) for span in spans[:2]] == [
            ("forward", 1, 0),
            ("backward", 1, 0),
        ]

    def test_samples_of_every_rank_are_kept_and_give_those_of_the_job(self, run, script: Script):
        script(noise=0.001, ranks={"1": {"noise": 0.002, "seed": 2}})
        record = run()
        (launch,) = codec.as_record(record).samples.launches
        one, other = launch.ranks
        assert [len(block.step_s) for block in one.blocks] == [len(block.step_s) for block in other.blocks]
        assert one.blocks[-1].step_s != other.blocks[-1].step_s
        skipped, steady = launch.warmup_steps, list[float]()
        for block in launch.blocks:
            taken = min(len(block.step_s), skipped // block.steps_per_sample)
            skipped -= taken * block.steps_per_sample
            steady += block.step_s[taken:]
        assert median(steady) == record["summary"]["step_s"]["median"]

    def test_how_far_ranks_are_apart(self, run, script: Script):
        """The scripted clock of each rank goes on from its own last step, so rank 1 falls ever further behind."""
        script(noise=0.001, warmup=[], ranks={"1": {"step_s": 0.011}})
        skew = run()["parallel"]["skew"]
        assert skew["error_s"] == 0
        assert skew["behind_s"][0]["median"] == 0
        assert skew["behind_s"][1] == skew["spread_s"]
        assert skew["spread_s"]["low"] <= skew["spread_s"]["median"] <= skew["spread_s"]["high"]
        assert skew["spread_s"]["median"] > 0.001

    def test_one_process_has_no_such_part(self, run):
        record = run(processes=1)
        assert "parallel" not in record
        assert record["setup"]["effective"]["transport"] == {"value": "none", "source": "observed"}

    def test_a_slow_rank_is_found(self, run, script: Script):
        slow = {"programs": {"local": 1.3, "meet": 1.3, "exchange": 0.5, "train": 1.3, "forward": 0.3, "gradient": 0.9}}
        fast = {"programs": {"local": 0.7, "meet": 1.3, "exchange": 0.5, "train": 1.3, "forward": 0.3, "gradient": 0.9}}
        script(noise=0.001, ranks={"0": fast, "1": slow})
        record = run()
        waiting = record["parallel"]["communication"]["waiting_s"]
        assert waiting[0]["median"] == pytest.approx(0.6 / 1.3 * 0.01, rel=0.1)
        assert {"straggler"} <= {doubt["code"] for doubt in record["doubts"]}

    def test_replicas_that_differ_are_doubted(self, run, script: Script):
        script(ranks={"1": {"update_size": 2.0}})
        assert "replicas_differ" in {doubt["code"] for doubt in run()["doubts"]}


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "outcome", "told"),
        [
            ("exit", "crashed", "exited with code 7"),
            ("error", "crashed", "scripted failure"),
            ("segfault", "crashed", "SIGSEGV"),
        ],
    )
    def test_the_rank_that_began_is_named(self, run, script: Script, kind: str, outcome: str, told: str):
        script(ranks={"1": {"fault": {"at": "step", "step": 6, "kind": kind}}})
        record = run()
        assert record["outcome"] == outcome
        assert record["failure"]["reason"].startswith("rank 1: ")
        assert told in record["failure"]["reason"]

    @pytest.mark.parametrize(
        ("axes", "title"),
        [({"scheme": "server"}, "rank 2 (server 0): "), ({"processes": 3, "scheme": "pipeline"}, "rank 2 (stage 2): ")],
    )
    def test_a_rank_is_named_with_what_it_does(self, run, script: Script, axes: dict[str, Value], title: str):
        script(ranks={"2": {"fault": {"at": "step", "step": 6, "kind": "exit"}}})
        assert run(**{"batch": 6, **axes})["failure"]["reason"].startswith(title)

    def test_another_number_of_processes_than_asked_for(self, run, script: Script):
        script(world=1)
        with pytest.raises(MissingError, match="world of size 1, asked for 2"):
            run()

    def test_another_mpi_library_than_the_job_was_planned_with(self, script: Script):
        script(library="MPICH Version: 5.0.2")
        job = replace(fake_job(processes=2), mpi="Open MPI v5.0.11")
        with pytest.raises(MissingError, match=r"loaded MPICH Version: 5.0.2, and the job was planned with Open MPI"):
            run_job(job, QUICK)
        script(library="Open MPI v5.0.11")
        draft = run_job(job, QUICK)
        assert (draft.outcome, draft.identity.mpi) == ("ok", "Open MPI v5.0.11")

    @pytest.mark.parametrize(
        ("number", "outcome", "told"),
        [(signal.SIGKILL, "crashed", "ended by SIGKILL"), (signal.SIGSTOP, "timeout", "is stopped")],
    )
    @no_kill_meanwhile()
    def test_a_process_that_is_killed_or_stopped_is_named(
        self, run, script: Script, monkeypatch: pytest.MonkeyPatch, number: int, outcome: str, told: str
    ):
        if number == signal.SIGSTOP:  # one that is slow, on a busy machine, is not to be taken for one that is stopped
            monkeypatch.setattr(team, "_BLOCK_GRACE_S", 5.0)
            monkeypatch.setattr(team, "_BLOCK_PATIENCE", 3.0)
        mark = f"team-{os.getpid()}-{number}"
        monkeypatch.setenv(MARK_VARIABLE, mark)
        script(sleep=True, step_s=0.02)
        attacker = threading.Thread(target=attack_a_worker, args=(mark, number))
        attacker.start()
        record = run(Effort(budget_s=100.0, timeout_s=100.0))
        attacker.join()
        assert record["outcome"] == outcome
        assert record["failure"]["reason"].startswith("rank ")
        assert told in record["failure"]["reason"]
        assert seconds_until_gone(mark) < SOON_S


class TestBlame:
    """Who began, where a library gives a peer up before the controller does."""

    ABORTED = "F1117 client.h:80] Terminating process because the JAX distributed service detected fatal errors."

    def test_a_process_that_its_library_ends_is_a_consequence(self):
        reason = "the worker was ended by SIGABRT"
        aborted = JobFailed("crashed", reason, stage="block", stderr_tail=self.ABORTED, signal="SIGABRT")
        killed = JobFailed("crashed", "the worker was ended by SIGKILL", stage="block", signal="SIGKILL")
        failures = [
            RankFailure(rank=0, failure=aborted, at_s=1.0),
            RankFailure(rank=1, failure=killed, at_s=2.0),
        ]
        assert (
            blamed(failures, [], ["rank 0", "rank 1"]).reason
            == "rank 1: the worker was ended by SIGKILL; with it went rank 0"
        )

    def test_what_peers_say_is_waited_for_only_while_it_may_matter(
        self, run, script: Script, monkeypatch: pytest.MonkeyPatch
    ):
        """Rank 1 ends without a word, and rank 0 would say nothing for an hour, as with MPI."""
        monkeypatch.setattr(team, "PEERS_PATIENCE_S", 600.0)
        ended, silent = ({"fault": {"at": "step", "step": 6, "kind": kind}} for kind in ("exit", "hang"))
        script(ranks={"0": silent, "1": ended})
        begin_s = time.monotonic()
        record = run()
        assert time.monotonic() - begin_s < 200.0
        assert record["failure"]["reason"].startswith("rank 1: ")
        assert record["failure"]["reason"].endswith("rank 0 waited for it and was ended")

    def test_a_stopped_process_is_named_when_another_fails_first(self, run, script: Script):
        """Rank 1 is held in its sixth step; rank 0 then says that it lost its peer."""
        lost, held = ({"fault": {"at": "step", "step": 6, "kind": kind}} for kind in ("peer", "stop"))
        script(sleep=True, step_s=0.02, ranks={"0": lost, "1": held})
        record = run(Effort(budget_s=100.0, timeout_s=100.0))
        assert record["outcome"] == "timeout"
        assert record["failure"]["reason"].startswith("rank 1: it is stopped")
        assert record["failure"]["reason"].endswith("with it went rank 0")


def attack_a_worker(mark: str, number: int) -> None:
    """Once both workers have measured for a while."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        workers = [pid for pid in carrying(mark) if is_worker(pid)]
        if len(workers) == 2:
            time.sleep(3.0)
            os.kill(workers[-1], number)
            return
        time.sleep(0.05)


def is_worker(pid: int) -> bool:
    words = read_bytes(Path(f"/proc/{pid}/cmdline")).split(b"\0")
    return len(words) > 1 and words[1].endswith(b"serve.py")
