"""A record whose numbers do not follow from its samples is refused at import, with the number that is wrong.

That all we publish can still be imported is tested in tests/results.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from depth import examples
from factory import check_record, make_record, sha
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import RefusedInputError
from deepstone.measure.doubts import derived_doubts
from deepstone.measure.statistics import Quantity, median_of
from deepstone.results import codec
from deepstone.results.record import Record
from deepstone.store import contradictions
from deepstone.store.importing import import_records
from deepstone.store.store import Store

Change = Callable[[Any], object]


def check_consistent(record: Any) -> None:
    """As an import does, without the checks of whole records that would find some of these faults before."""
    contradictions.check_consistent(codec.convert(record, Record))


def record_of(*launches: list[list[float]], batch: int = 8, target: float = 2.0, **top: Any) -> Any:
    """A consistent record of these steady samples: launches of blocks."""
    step = median_of(launches)
    flat = [sample for launch in launches for block in launch for sample in block]
    found = derived_doubts(launches, step, target_share=target / 100, phases=(), share_of_peak=None)
    return make_record(
        batch=batch,
        command=["deepstone", "run", "cifarnet", *([] if target == 2.0 else ["--target", f"{target:g}"])],
        samples={"launches": [_launch(launch) for launch in launches], "warmup_steps": len(launches)},
        summary={
            "step_s": step.to_json(),
            "samples_per_s": step.inverse(batch).to_json(),
            "sustained_samples_per_s": batch * len(flat) / sum(flat),
            "interval": "within process" if len(launches) == 1 else "across launches",
            "stopped": "budget spent",
        },
        phases={"absent": "not measured"},
        doubts=[doubt.to_json() for doubt in found],
        **top,
    )


def _launch(blocks: list[list[float]]) -> dict[str, Any]:
    written = [{"start_s": 0.0, "steps_per_sample": 1, "step_s": [9.0]}]
    written += [{"start_s": 1.0, "steps_per_sample": 3, "step_s": block} for block in blocks]
    return {"ranks": [{"blocks": written}], "warmup_steps": 1}


def codes(record: Any) -> set[str]:
    return {doubt["code"] for doubt in record["doubts"]}


QUIET = [[0.0100, 0.0101, 0.0102, 0.0101, 0.0100], [0.0101, 0.0102, 0.0100, 0.0101, 0.0102]]
SLOWER = [[1.5 * sample for sample in block] for block in QUIET]
RISING = [[0.010 + 0.0002 * (10 * block + number) for number in range(10)] for block in range(4)]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (record_of(QUIET), set[str]()),
        (record_of(QUIET, SLOWER), {"diverging_launches", "interval_too_wide"}),
        (record_of(RISING, target=50.0), {"trend"}),
        (record_of([[0.01]]), {"few_samples", "interval_too_wide"}),
        (record_of([[0.01, 0.02]], target=10.0), {"few_samples", "interval_too_wide"}),
    ],
    ids=["quiet", "diverging", "rising", "one sample", "two samples"],
)
def test_each_doubt_that_follows_is_asked_for(record: Any, expected: set[str]) -> None:
    assert codes(record) == expected
    check_consistent(check_record(record))
    for code in expected:
        without = {**record, "doubts": [doubt for doubt in record["doubts"] if doubt["code"] != code]}
        with pytest.raises(RefusedInputError, match=f"doubts: {code} is missing"):
            check_consistent(without)
    for code in {"trend", "few_samples", "interval_too_wide", "diverging_launches"} - expected:
        added = {**record, "doubts": [*record["doubts"], {"code": code, "detail": "made up"}]}
        with pytest.raises(RefusedInputError, match=f"doubts: {code} does not follow"):
            check_consistent(added)


def _set(*path: str | int, to: Callable[[Any], object]) -> Change:
    def change(record: Any) -> None:
        place = record
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to(place[path[-1]])

    return change


def _faster(record: Any) -> None:
    """All that the summary says, twice as fast, each number in tune with the others; only the samples were left."""
    for key in ("step_s", "samples_per_s"):
        for part in ("median", "low", "high"):
            record["summary"][key][part] *= 0.5 if key == "step_s" else 2
    record["summary"]["sustained_samples_per_s"] *= 2


def _slower(rank: Any) -> Any:
    """Another rank, for which all must have waited."""
    return {"blocks": [{**block, "step_s": [1.1 * each for each in block["step_s"]]} for block in rank["blocks"]]}


COMPARED = {
    "side": "a",
    "other_job": sha("other"),
    "ratio": {"median": 1.1, "low": 1.05, "high": 1.2, "n": 8},
    "verdict": "b faster",
    "pairs": 8,
    "pairing": "interleaved",
    "sameness": {"absent": "not checked"},
}
NOTHING = {"median": 0.0, "low": 0.0, "high": 0.0, "n": 8}
LEARNING = {"losses": [[1, 2.3], [3, 2.2], [200, 1.1]], "early_change": 0.1, "arrays": 4, "moved": 4}
STANDING = {"losses": [[1, 2.3], [3, 2.3], [200, 2.3]]}
PEAK = {"share": 1.5, "precision": "fp32", "peak_flops_per_s": 1.0}


def _above_peak(record: Any) -> None:
    share = record["cost"]["flops"] / record["summary"]["step_s"]["median"] / 1.5
    record["share_of_peak"] = {**PEAK, "peak_flops_per_s": share}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_faster, "summary.step_s.median: is 0.00505, and the record's own numbers give 0.0101"),
        (_set("summary", "step_s", "n", to=lambda n: n + 1), "summary.step_s.n"),
        (_set("summary", "step_s", "low", to=lambda low: low * 0.98), "summary.step_s.low"),
        (_set("summary", "step_s", "high", to=lambda high: high * 1.02), "summary.step_s.high"),
        (_set("summary", "step_s", "low", to=lambda _: {"absent": "lost"}), "summary.step_s"),
        (_set("summary", "samples_per_s", "median", to=lambda rate: rate * 1.001), "summary.samples_per_s.median"),
        (_set("summary", "samples_per_s", "high", to=lambda rate: rate * 1.1), "summary.samples_per_s.high"),
        (_set("summary", "sustained_samples_per_s", to=lambda rate: rate * 1.01), "summary.sustained_samples_per_s"),
        (_set("summary", "interval", to=lambda _: "across launches"), "summary.interval"),
        (_set("samples", "launches", 0, "ranks", 0, "blocks", 1, "step_s", 0, to=lambda _: 9.0), "summary."),
        (_set("samples", "launches", 0, "warmup_steps", to=lambda _: 2), "warmup_steps: ends in the middle"),
        (_set("samples", "launches", 0, "warmup_steps", to=lambda _: 1000), "no samples after warm-up"),
        (_set("samples", "launches", to=lambda _: []), "no samples after warm-up"),
        (_set("samples", "launches", 0, "ranks", to=lambda ranks: [*ranks, _slower(ranks[0])]), "summary.step_s"),
        (_set("outcome", to=lambda _: "oom"), "summary: a run that ended as oom has none"),
        (_set("share_of_peak", to=lambda _: PEAK), "share_of_peak.share"),
        (_above_peak, "doubts: above_peak is missing"),
        (_set("command", to=lambda words: [*words, "--target", "x"]), "command: --target"),
        (_set("setup", "requested", "layout", to=lambda _: "nhwc"), "setup.effective.layout: is 'nchw', and nhwc was"),
        (_set("comparison", to=lambda _: {**COMPARED, "verdict": "a faster"}), "comparison.verdict: is 'a faster'"),
        (_set("comparison", "ratio", to=lambda _: NOTHING), "comparison.ratio: is no ratio of two times"),
        (_set("training", to=lambda _: STANDING), "doubts: not_training is missing: the loss is 2.3"),
        (_set("training", to=lambda _: {**LEARNING, "moved": 0}), "doubts: not_training is missing: the first steps"),
    ],
)
def test_a_contradiction_is_named(change: Change, told: str) -> None:
    record = deepcopy(record_of(QUIET, training=LEARNING, comparison=COMPARED))
    check_consistent(record)
    change(record)
    with pytest.raises(RefusedInputError) as caught:
        check_consistent(record)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("training", "precision", "phase"),
    [(STANDING, "bf16", "train"), (STANDING, "fp32", "forward"), ({"absent": "ended early"}, "fp32", "train")],
)
def test_what_need_not_move_is_not_asked_to(training: Any, precision: str, phase: str) -> None:
    record = record_of(QUIET, training=training)
    record["setup"]["effective"]["precision"] = {"value": precision, "source": "observed"}
    record["workload"]["phase"] = phase
    check_consistent(record)


def test_a_user_called_as_a_value_is() -> None:
    """What redaction took out of an effective value contradicts nothing."""
    record = record_of(QUIET)
    record["setup"]["requested"]["device"] = "cpu"
    record["setup"]["effective"]["device"] = {"value": "<user>", "source": "observed"}
    check_consistent(record)


def test_another_bootstrap_is_believed_and_a_better_one_is_not() -> None:
    record = record_of(RISING, target=50.0)
    step = median_of([RISING])
    for seed in range(100, 120):
        other = median_of([RISING], seed=seed)
        check_consistent(_with_interval(record, other.low, other.high))
    half = (step.high - step.low) / 4
    with pytest.raises(RefusedInputError, match=r"summary\.step_s\.low"):
        check_consistent(_with_interval(record, step.median - half, step.median + half))


def _with_interval(record: Any, low: float, high: float) -> Any:
    step = Quantity.of(
        median=record["summary"]["step_s"]["median"], low=low, high=high, n=record["summary"]["step_s"]["n"]
    )
    quantities = {"step_s": step.to_json(), "samples_per_s": step.inverse(8).to_json()}
    return {**record, "summary": {**record["summary"], **quantities}}


times = st.floats(0, 1e308) | st.floats(1e-3, 1.0)


@examples(60)
@given(st.lists(st.lists(times, max_size=4), max_size=4), st.integers(0, 20), st.integers(1, 5))
def test_whatever_stands_in_the_samples_is_judged_or_refused(
    blocks: list[list[float]], warmup: int, steps_per_sample: int
) -> None:
    written = [{"start_s": 0.0, "steps_per_sample": steps_per_sample, "step_s": block} for block in blocks]
    launch = {"ranks": [{"blocks": written}], "warmup_steps": warmup}
    record: Any = {**make_record(), "samples": {"launches": [launch], "warmup_steps": warmup}}
    with pytest.raises(RefusedInputError):
        check_consistent(record)


def test_a_million_blocks_do_not_take_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepstone.store.contradictions._MOST_DRAWS", 10_000)
    record = record_of([[0.010, 0.0101, 0.0099]] * 400)
    check_consistent(record)
    with pytest.raises(RefusedInputError, match=r"summary\.step_s\.low"):
        check_consistent(_with_interval(record, 0.009, 0.0101))


def test_import_refuses_it_whole_and_says_where(tmp_path: Path) -> None:
    good, bad = record_of(QUIET), deepcopy(record_of(QUIET, batch=16))
    _faster(bad)
    file = tmp_path / "file.jsonl"
    file.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    store = Store.open(tmp_path / "store")
    with pytest.raises(RefusedInputError, match=r"line 2: summary\.step_s\.median: .*; nothing was imported"):
        import_records(store, file)
    assert store.list().rows == ()


@pytest.mark.parametrize("command", [["curl", "x"], ["/tmp/deepstone", "run"], ["Deepstone"], [""]])
def test_a_command_that_is_not_ours(command: list[str]) -> None:
    with pytest.raises(RefusedInputError, match=r"command\[0\]: must be 'deepstone'"):
        check_record({**make_record(), "command": command})
