"""One job from start to record, on the scripted backend: when it stops, what it keeps, and what each failure becomes.

The fake keeps its own clock, so nothing here waits for it; every record goes through a store, which checks it.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from factory import CONTRADICTIONS, JsonRecord, is_absent
from fake_jobs import SOON_S, Script, carrying, fake_job, seconds_until_gone
from memory_cgroups import memory_cgroup
from msgspec import structs

from deepstone.errors import MissingError
from deepstone.measure.effort import Effort
from deepstone.runner import run as run_module
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.runner.run import run_job
from deepstone.setups.axes import Value
from deepstone.store.store import Store

QUICK = Effort(budget_s=2.0)
FALLING = [100.0, *(5 - 0.1 * step for step in range(40))]  # factors of the first steps


@pytest.fixture
def run(store: Store):
    """Runs a job, stores its record, and reads it back."""

    def run(effort: Effort = QUICK, on_progress: OnProgress = no_progress, **axes: Value) -> Any:
        return store.get(store.add(run_job(fake_job(**axes), effort, on_progress)).id).to_json()

    return run


def blocks_of(record: JsonRecord, launch: int = 0) -> list[Any]:
    return record["samples"]["launches"][launch]["ranks"][0]["blocks"]


def steps_of(record: JsonRecord) -> list[float]:
    return [step_s for block in blocks_of(record) for step_s in block["step_s"]]


def codes(record: JsonRecord) -> set[str]:
    return {doubt["code"] for doubt in record["doubts"]}


class TestStopping:
    def test_at_the_target(self, run, script: Script):
        script(noise=0.01)
        record = run(Effort(budget_s=20.0, target_share=0.02))
        summary = record["summary"]
        assert record["outcome"] == "ok"
        assert summary["stopped"] == "interval within the target"
        assert summary["step_s"]["median"] == pytest.approx(0.01, rel=0.01)
        assert summary["step_s"]["n"] >= 10
        half_width = (summary["step_s"]["high"] - summary["step_s"]["low"]) / 2
        assert half_width <= 0.02 * summary["step_s"]["median"]
        assert sum(steps_of(record)) < 10
        assert "interval_too_wide" not in codes(record)

    def test_at_the_budget_with_a_doubt(self, run, script: Script):
        script(noise=0.2)
        record = run(Effort(budget_s=3.0, target_share=0.001))
        assert record["outcome"] == "ok"
        assert record["summary"]["stopped"] == "budget spent"
        timed_s = sum(sum(block["step_s"]) * block["steps_per_sample"] for block in blocks_of(record))
        assert 3.0 <= timed_s <= 3.0 + 2 * Effort(budget_s=3.0).block_s
        assert "interval_too_wide" in codes(record)

    def test_a_narrow_interval_takes_longer_than_a_wide_one(self, run, script: Script):
        script(noise=0.3)
        lengths = [len(steps_of(run(Effort(budget_s=200.0, target_share=target)))) for target in (0.05, 0.02)]
        assert lengths[1] > 2 * lengths[0]

    def test_not_while_steps_still_become_faster(self, run, script: Script):
        """Less noise than the target from the first step on: only the slope says that it is too early."""
        script(noise=0.001, warmup=FALLING)
        record = run(Effort(budget_s=20.0, target_share=0.02))
        assert record["summary"]["stopped"] == "interval within the target"
        assert record["summary"]["step_s"]["median"] == pytest.approx(0.01, rel=0.01)

    @pytest.mark.parametrize("slow_steps", [30, 45])
    def test_not_inside_a_start_that_is_slow_and_even(self, run, script: Script, slow_steps: int):
        """So many steps of a hundredth of a second take 50 ms more, with less noise than the target."""
        script(step_s=0.011, noise=0.01, warmup=[5.5] * slow_steps)
        record = run(Effort(budget_s=5.0, target_share=0.02))
        assert record["summary"]["step_s"]["median"] == pytest.approx(0.011, rel=0.02)

    def test_steps_measured_later_must_agree(self, run, script: Script):
        """Even and slow for longer than the least time: what comes after it is not what was measured."""
        script(step_s=0.01, noise=0.002, warmup=[5.0] * 64)
        record = run(Effort(budget_s=20.0, target_share=0.02))
        assert record["summary"]["step_s"]["median"] == pytest.approx(0.01, rel=0.02)

    def test_a_budget_for_one_sample_is_stretched_and_says_so(self, run, script: Script):
        script(step_s=1.0)
        record = run(Effort(budget_s=0.05))
        assert record["summary"]["step_s"]["n"] >= 5
        assert "stretched" in record["summary"]["stopped"]
        assert "few_samples" in codes(record)


class TestTraining:
    """Whether the timed steps train is read off the process that was timed."""

    def test_steps_that_train_leave_no_doubt(self, run):
        record = run()
        assert "not_training" not in codes(record)
        losses = record["training"]["losses"]
        assert [steps for steps, _ in losses[:2]] == [1, 3]
        assert losses[-1][0] > sum(block["steps_per_sample"] * len(block["step_s"]) for block in blocks_of(record))
        assert record["training"]["moved"] == record["training"]["arrays"]

    @pytest.mark.parametrize("updates", [0, 1, 40])
    def test_updates_that_are_left_out_or_stop_are_told(self, run, script: Script, updates: int):
        script(updates=updates)
        record = run()
        assert record["outcome"] == "ok"
        assert "not_training" in codes(record)

    @pytest.mark.parametrize("phase", ["forward", "gradient"])
    def test_what_does_not_train_need_not(self, run, script: Script, phase: str):
        script(updates=0)
        assert "not_training" not in codes(run(phase=phase))


class TestMeasuring:
    def test_warmup_is_kept_in_the_samples_and_out_of_the_summary(self, run, script: Script):
        script(noise=0.01, warmup=FALLING)
        record = run()
        summary, warmup_steps = record["summary"], record["samples"]["warmup_steps"]
        assert len(FALLING) - 8 <= warmup_steps <= len(FALLING) + 20
        assert max(steps_of(record)) > 0.04
        assert summary["step_s"]["median"] == pytest.approx(0.01, rel=0.02)
        assert summary["sustained_samples_per_s"] == pytest.approx(8 / 0.01, rel=0.03)
        steps = sum(len(block["step_s"]) * block["steps_per_sample"] for block in blocks_of(record))
        assert summary["step_s"]["n"] == steps - warmup_steps

    def test_a_rate_is_the_batch_over_the_time(self, run, script: Script):
        script(noise=0.01)
        summary = run(batch=16)["summary"]
        step, rate = summary["step_s"], summary["samples_per_s"]
        assert rate["median"] == pytest.approx(16 / step["median"])
        assert (rate["low"], rate["high"]) == pytest.approx((16 / step["high"], 16 / step["low"]))
        assert rate["n"] == step["n"]

    def test_short_steps_are_timed_in_groups(self, run, script: Script):
        script(step_s=2e-5, noise=0.01)
        record = run()
        assert blocks_of(record)[-1]["steps_per_sample"] >= 45
        assert record["summary"]["step_s"]["median"] == pytest.approx(2e-5, rel=0.02)
        assert "too_short_to_time" not in codes(record)

    def test_long_steps_are_timed_one_by_one(self, run, script: Script):
        script(step_s=30.0, noise=0.001, warmup=[1.5])
        record = run(Effort(budget_s=300.0))
        assert {block["steps_per_sample"] for block in blocks_of(record)} == {1}
        assert record["summary"]["stopped"] == "budget spent"
        assert len(steps_of(record)) <= 11
        assert "few_samples" in codes(record)

    def test_a_drift_is_told(self, run, script: Script):
        script(noise=0.005, drift=0.001, warmup=[])
        assert "trend" in codes(run(Effort(budget_s=3.0, target_share=0.0001)))

    def test_several_launches(self, run, script: Script):
        steps_s = [0.010, 0.012, 0.009]
        script(noise=0.005, step_s=steps_s[0])
        left_s = steps_s[1:]

        def change_the_next(stage: str, _share: float) -> None:
            if stage == "energy" and left_s:  # a launch is almost over
                script(noise=0.005, step_s=left_s.pop(0))

        record = run(Effort(budget_s=2.0, launches=3), change_the_next)
        launches = record["samples"]["launches"]
        medians = [
            median(step for block in blocks_of(record, number) for step in block["step_s"])
            for number in range(len(launches))
        ]
        assert medians == pytest.approx(steps_s, rel=0.02)
        assert record["summary"]["interval"] == "across launches"
        assert record["samples"]["warmup_steps"] == sum(launch["warmup_steps"] for launch in launches)
        step = record["summary"]["step_s"]
        assert step["low"] == pytest.approx(0.009, rel=0.02)
        assert step["high"] == pytest.approx(0.012, rel=0.02)
        assert "diverging_launches" in codes(record)

    def test_several_launches_are_summarized_whole(self, run, script: Script):
        """What a launch tells besides its steps counts as much in the first launch as in the last."""
        script(noise=0.005, step_s=0.012, memory={"base": 3 * 2**20, "per_sample": 0})

        def change_the_next(stage: str, _share: float) -> None:
            if stage == "energy":  # a launch is almost over
                script(noise=0.005, step_s=0.009)

        record = run(Effort(budget_s=2.0, launches=2), change_the_next)
        forward = record["phases"]["forward_s"]
        alone = run(Effort(budget_s=2.0))["phases"]["forward_s"]
        assert forward["low"] == pytest.approx(alone["low"], rel=0.05)
        assert forward["high"] / forward["low"] == pytest.approx(12 / 9, rel=0.05)
        assert forward["n"] > alone["n"]
        assert record["memory"]["device_allocated_bytes"] == 3 * 2**20

    def test_one_launch_speaks_for_itself_alone(self, run):
        assert run()["summary"]["interval"] == "within process"

    def test_progress_is_told_between_blocks_and_goes_forward(self, run, script: Script):
        script(noise=0.2)
        told: list[tuple[str, float]] = []
        run(Effort(budget_s=2.0, target_share=0.0001, launches=2), lambda stage, share: told.append((stage, share)))
        shares = [share for _, share in told]
        assert shares == sorted(shares)
        assert 0 <= min(shares) <= max(shares) <= 1
        stages = [stage for stage, _ in itertools.groupby(stage for stage, _ in told)]
        assert stages == ["starting the framework", "building the network", "measuring", "phases", "energy"] * 2

    def test_the_rest_of_the_record(self, run):
        record = run(batch=4, phase="forward")
        assert record["setup"]["requested"]["batch"] == 4
        assert record["setup"]["effective"]["layout"] == {"value": "nchw", "source": "set"}
        assert record["workload"]["phase"] == "forward"
        assert record["memory"]["host_peak_bytes"] > 2**20
        assert record["memory"]["analytic_bytes"] > 0
        assert is_absent(record["memory"]["device_allocated_bytes"])
        assert set(record["startup"]) == {"import_s", "build_s", "first_step_s"}
        assert record["startup"]["first_step_s"] == pytest.approx(0.05, rel=0.1)
        assert record["cost"]["flops"] > 0
        assert record["environment"]["framework"]["version"] == "1"
        assert is_absent(record["comparison"])
        assert is_absent(record["failure"])


class TestPhases:
    def test_by_marks(self, run, script: Script):
        script(noise=0.01)
        phases = run()["phases"]
        assert phases["method"] == "timestamps in steps of their own"
        assert phases["data_s"]["median"] == 0
        for name, share in (("forward", 0.3), ("backward", 0.6), ("update", 0.1)):
            assert phases[f"{name}_s"]["median"] == pytest.approx(share * 0.01, rel=0.02)
        assert is_absent(phases["communication_s"])

    @pytest.mark.parametrize(("phase", "absent"), [("forward", {"backward_s", "update_s"}), ("gradient", {"update_s"})])
    def test_a_phase_that_a_job_has_not_is_absent(self, run, phase: str, absent: set[str]):
        phases = run(phase=phase)["phases"]
        assert {name for name, value in phases.items() if is_absent(value)} == absent | {"communication_s"}
        assert phases[min(absent)]["absent"] == f"phase={phase} has none"

    def test_by_difference(self, run, script: Script):
        script(one_program=True, noise=0.01)
        record = run()
        phases = record["phases"]
        assert phases["method"] == "difference of separately compiled programs, interleaved"
        for name, share in (("forward", 0.3), ("backward", 0.6), ("update", 0.1)):
            assert phases[f"{name}_s"]["median"] == pytest.approx(share * 0.01, abs=0.0002)
        assert "one program" in phases["data_s"]["absent"]
        # The programs are other steps than the timed ones.
        assert record["summary"]["step_s"]["median"] == pytest.approx(0.01, rel=0.01)

    def test_a_negative_difference_is_shown(self, run, script: Script):
        script(one_program=True, noise=0.001, programs={"forward": 1.0, "gradient": 0.9, "train": 1.0})
        backward = run()["phases"]["backward_s"]
        assert backward["median"] == pytest.approx(-0.001, rel=0.1)
        assert backward["low"] <= backward["median"] <= backward["high"] < 0

    @pytest.mark.parametrize("phase", ["forward", "gradient"])
    def test_by_difference_in_a_job_without_an_update(self, run, script: Script, phase: str):
        script(one_program=True, noise=0.01)
        phases = run(phase=phase)["phases"]
        assert is_absent(phases["update_s"])
        assert is_absent(phases["backward_s"]) == (phase == "forward")
        assert phases["forward_s"]["median"] > 0


class TestUnsupported:
    def test_what_was_done_is_not_what_was_asked(self, run, script: Script):
        script(effective={"layout": "nchw"})
        record = run(layout="nhwc")
        assert record["outcome"] == "unsupported"
        assert record["failure"]["reason"] == "asked for layout=nhwc, but got nchw"
        assert record["failure"]["stage"] == "prepare"
        assert record["samples"]["launches"] == []
        assert is_absent(record["summary"])
        assert record["setup"]["effective"]["layout"]["value"] == "nchw"

    @pytest.mark.parametrize(("axis", "asked", "done"), CONTRADICTIONS)
    def test_whatever_the_axis(self, run, script: Script, axis: str, asked: Value, done: Value):
        script(effective={axis: done})
        record = run(**{axis: asked})
        assert record["outcome"] == "unsupported"
        assert record["failure"]["reason"] == f"asked for {axis}={asked}, but got {done}"
        assert is_absent(record["summary"])

    def test_what_was_done_at_first_and_no_longer_in_the_end(self, run, script: Script):
        """As by a module of the user's own that sets threads when it has run a while."""
        script(later={"threads": 2})
        record = run(threads=1)
        assert record["outcome"] == "unsupported"
        assert record["failure"]["reason"] == "asked for threads=1, but got 2 by the end of the run"
        assert record["failure"]["stage"] == "observe"
        assert len(steps_of(record)) > 0

    def test_what_changes_and_was_left_open_is_no_matter(self, run, script: Script):
        script(later={"threads": 2})
        assert run()["outcome"] == "ok"

    def test_a_broken_rule_starts_no_worker(self, run, monkeypatch: pytest.MonkeyPatch):
        def start(*_arguments: object, **_options: object) -> None:
            raise AssertionError("a worker was started")

        monkeypatch.setattr(run_module, "talking_to", start)
        record = run(device="cpu", precision="tf32")
        assert record["outcome"] == "unsupported"
        assert record["failure"]["reason"].startswith("TF32 is a format of GPU matrix units")
        assert record["failure"]["stage"] == "plan"
        assert record["setup"]["effective"] == {}

    def test_the_backend_refuses(self, run, script: Script):
        script(fault={"at": "build", "kind": "unsupported"})
        record = run()
        assert record["outcome"] == "unsupported"
        assert record["failure"]["reason"] == "scripted: cannot be done"
        assert "Traceback" not in record["failure"]["stderr_tail"]


class TestDiverged:
    @pytest.mark.parametrize(("source", "told"), [("net.onnx", True), ("net.json", False), ("zoo", False)])
    def test_an_onnx_file_without_batch_norm_is_told_the_remedy(self, script: Script, source: str, told: bool):
        script(loss="nan")
        job = fake_job()
        job = structs.replace(job, model=replace(job.model, source=source))
        failure = run_job(job, QUICK, no_progress).failure
        assert failure is not None
        assert ("export it in training mode, or use optimizer=adam" in failure.reason) == told

    @pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
    def test_the_samples_are_kept(self, run, script: Script, loss: str):
        script(loss=loss)
        record = run()
        assert record["outcome"] == "diverged"
        assert record["failure"]["reason"] == f"the loss became {loss}"
        assert record["failure"]["stage"] == "losses"
        assert len(steps_of(record)) >= 10
        assert record["summary"]["step_s"]["median"] == pytest.approx(0.01, rel=0.02)
        assert not is_absent(record["phases"])
        assert record["memory"]["host_peak_bytes"] > 0


def fault(kind: str, at: str = "step", step: int = 40) -> dict[str, object]:
    return {"kind": kind, "at": at, "step": step}


NOT_SOON = Effort(budget_s=30.0, target_share=1e-9)


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "outcome", "details"),
        [
            ("segfault", "crashed", {"signal": "SIGSEGV", "reason": "the worker was ended by SIGSEGV"}),
            ("illegal_instruction", "crashed", {"signal": "SIGILL", "reason": "the worker was ended by SIGILL"}),
            ("exit", "crashed", {"exit_code": 7, "reason": "the worker exited with code 7"}),
            ("error", "crashed", {"reason": "RuntimeError: scripted failure"}),
            ("memory_error", "oom", {"reason": "MemoryError: scripted"}),
        ],
    )
    def test_what_was_measured_before_is_kept(self, run, script: Script, kind: str, outcome: str, details):
        script(fault=fault(kind, step=200), noise=0.1)
        record = run(NOT_SOON)
        assert record["outcome"] == outcome
        failure = dict(record["failure"])
        tail = failure.pop("stderr_tail")
        assert failure == {"stage": "block", **details}
        assert ("Traceback" in tail) == (kind in ("error", "memory_error"))
        kept = steps_of(record)
        assert 50 <= len(kept) < 200
        assert median(kept) == pytest.approx(0.01, rel=0.1)
        assert is_absent(record["summary"])
        assert is_absent(record["phases"])
        assert record["setup"]["effective"]["device"]["value"] == "cpu"
        assert record["doubts"] == []

    def test_while_building(self, run, script: Script):
        script(fault=fault("segfault", at="build"))
        record = run()
        assert (record["outcome"], record["failure"]["stage"]) == ("crashed", "prepare")
        assert record["samples"]["launches"] == []
        assert record["startup"]["import_s"] > 0
        assert is_absent(record["startup"]["build_s"])

    def test_while_reading_the_loss(self, run, script: Script):
        script(fault=fault("exit", at="loss"))
        record = run()
        assert (record["outcome"], record["failure"]["stage"]) == ("crashed", "losses")
        assert len(steps_of(record)) >= 10

    def test_in_the_second_launch_the_first_is_kept(self, run, script: Script):
        def break_the_next(stage: str, share: float) -> None:
            if stage == "energy":  # the first launch is almost over
                script(fault=fault("segfault"))

        record = run(Effort(budget_s=2.0, target_share=1e-9, launches=2), break_the_next)
        assert record["outcome"] == "crashed"
        first, second = record["samples"]["launches"]
        assert len(first["ranks"][0]["blocks"]) > len(second["ranks"][0]["blocks"]) > 0

    def test_a_missing_device_is_no_record(self, run, script: Script):
        script(fault=fault("missing", at="build"))
        with pytest.raises(MissingError, match="scripted: not there; install it"):
            run()

    def test_a_hang_that_ignores_term_is_a_timeout(self, run, script: Script, marked_processes: str):
        script(fault=fault("hang"))
        for timeout_s in (1.5, 6.0, 24.0):  # on a busy machine the worker needs longer until it hangs
            start_s = time.monotonic()
            record = run(Effort(budget_s=30.0, target_share=1e-9, timeout_s=timeout_s))
            taken_s = time.monotonic() - start_s
            if record["failure"]["stage"] == "block":
                break
        assert record["outcome"] == "timeout"
        assert record["failure"]["stage"] == "block"
        assert "--timeout" in record["failure"]["reason"]
        assert timeout_s <= taken_s < timeout_s + 60
        assert len(steps_of(record)) > 0
        assert carrying(marked_processes) == []

    def test_a_daemonized_grandchild_goes_with_the_worker(self, run, script: Script, marked_processes: str):
        script(fault=fault("daemon", at="build"))
        seen: list[int] = []

        def count(stage: str, _share: float) -> None:
            if stage == "phases":
                seen.append(len(carrying(marked_processes)))

        assert run(on_progress=count)["outcome"] == "ok"
        assert seen == [3]  # keeper, worker, grandchild
        assert seconds_until_gone(marked_processes) < SOON_S

    def test_a_grandchild_of_a_crashed_worker_goes_too(self, run, script: Script, marked_processes: str):
        script(fault=fault("daemon", at="build"))
        seen: list[int] = []

        def kill_the_worker(stage: str, _share: float) -> None:
            if stage == "phases":
                worker = next(pid for pid in carrying(marked_processes) if is_worker(pid))
                os.kill(worker, signal.SIGSEGV)
                seen.append(worker)

        record = run(on_progress=kill_the_worker)
        assert seen
        assert (record["outcome"], record["failure"]["signal"]) == ("crashed", "SIGSEGV")
        assert carrying(marked_processes) == []

    def test_killed_for_lack_of_memory(
        self, run, script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, marked_processes: str
    ):
        """A real kill: the worker puts itself into a cgroup of 160 MiB before it does anything else."""
        with memory_cgroup(160 * 2**20) as folder:
            (tmp_path / "sitecustomize.py").write_text(
                f"import os, pathlib; pathlib.Path({str(folder / 'cgroup.procs')!r}).write_text(str(os.getpid()))"
            )
            monkeypatch.setenv("PYTHONPATH", str(tmp_path))
            script(fault=fault("eat_memory"))
            record = run(NOT_SOON)
            assert carrying(marked_processes) == []
        assert record["outcome"] == "oom"
        assert record["failure"]["signal"] == "SIGKILL"
        assert record["failure"]["reason"] == "the worker was killed by the system because memory ran out"
        assert len(steps_of(record)) > 0


def is_worker(pid: int) -> bool:
    """The keeper has the worker's whole command line behind its own."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"serve.py" in command and b"keeper.py" not in command


def test_a_record_can_be_read_by_others(run):
    """Plain JSON, all of it: what was stored is what a file holds."""
    record = run()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
