"""Sentences about limitations: what failed, what there was no time for, and doubts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from deepstone.analysis.cases import Case
from deepstone.analysis.facts import value_of
from deepstone.analysis.wording import counted, listed, statement
from deepstone.results.ceilings import frameworks_in, is_low_ceiling
from deepstone.results.claim import Statement
from deepstone.results.record import Record, ShareOfPeak
from deepstone.results.study import StudyState
from deepstone.setups.axes import AXES
from deepstone.units import percent

_FAILED, _LEFT_OUT, _SOME_DOUBT, _MUCH_DOUBT = 16.0, 14.0, 30.0, 95.0
_MUCH: Final = 0.25  # of the runs: then this statement comes first
_MOST_LISTED: Final = 6
_MOST_REASON: Final = 160

# Texts for doubts that a quieter machine would avoid; the sentence continues "… in 3 of 20 runs".
_DISTURBED: Final = {
    "other_load": "other processes kept it busy",
    "background_load": "other processes took a little of it",
    "gpu_shared": "other processes used its GPU",
    "cpu_quota": "the control group's quota stopped it",
    "cpu_steal": "the hypervisor gave its time to others",
    "involuntary_switches": "threads were often taken off their core",
    "clock_drop": "its clock fell",
    "throttling": "the device slowed itself down for heat or power",
}
_LOW_CEILING: Final = "low ceiling"  # no code of a record
_WRONG: Final = {
    "above_peak": "it did more operations in a second than the device can",
    "phases_disagree": "the step and its phases take different times",
    "clocks_disagree": "two clocks disagree about it",
    "not_training": "the timed steps are not shown to train",
    "replicas_differ": "the processes did not keep the same parameters",
}
_THIN: Final = {
    _LOW_CEILING: "they do more than the matrix product of the only framework that was measured, which is too low a "
    "ceiling (`deepstone doctor --peaks` measures it again)",
    "interval_too_wide": "the budget ended before the interval was as narrow as asked",
    "few_samples": "there were fewer than ten samples",
    "trend": "steps became slower or faster while it measured",
    "diverging_launches": "its launches differ by more than their samples explain",
    "host_bound": "the device waited for the host",
    "too_short_to_time": "a step is too short for the clock",
    "profiler_overhead": "the profiler changed the step",
    "around_the_network": "data went around the network",
    "clock_unaligned": "the clocks of its hosts are not known well enough",
    "unexplained_communication": "what communication adds to a step is not explained by its parts",
    "emulated_nodes": "nodes shared one machine",
    "oversubscribed": "processes had more threads than the machine has cores",
    "straggler": "processes waited for a slower one",
}


def say_limitations(found: Sequence[Case], study: StudyState | None) -> Iterator[Statement]:
    yield from _failed(found)
    if study is not None:
        yield from _left_out(study)
        yield from _not_installed(study)
    yield from _doubts(found)


def _failed(found: Sequence[Case]) -> Iterator[Statement]:
    """Yield one statement for each reason."""
    by_reason: dict[str, list[Case]] = {}
    for case in found:
        if not case.good:
            by_reason.setdefault(case.why_not, []).append(case)
    for reason, several in by_reason.items():
        words = listed([_typed(case) for case in several], _MOST_LISTED)
        yield statement(
            f"Could not be measured: {words} ({_shortened(reason)}).",
            rank=_FAILED,
            runs=[run for case in several for run in case.runs],
        )


def _typed(case: Case) -> str:
    requested = case.record.setup.requested
    words = [f"{axis}={value}" for axis, value in requested.items() if axis in AXES and value != AXES[axis].default]
    return " ".join([case.model, *words])


def _left_out(study: StudyState) -> Iterator[Statement]:
    """Name the tasks that were not measured at all, and count those that lack rounds."""
    done = {task.title for task in study.tasks if task.state == "done"}
    titles = dict.fromkeys(task.title for task in study.tasks if task.state == "left out")
    never = [_brief(title) for title in titles if title not in done]
    fewer = len(titles) - len(never)
    words = [listed(never, _MOST_LISTED)] if never else []
    words += [f"all rounds of {counted(fewer, 'other setup' if never else 'setup')}"] if fewer else []
    if words:
        resume = f"; `{study.resume}` goes on" if study.resume else ""
        yield statement(f"There was no time for {', nor for '.join(words)}{resume}.", rank=_LEFT_OUT)
    pruned = dict.fromkeys(
        f"{_brief(task.title)} ({_shortened(task.why)})" for task in study.tasks if task.state == "pruned"
    )
    if pruned:
        text = f"Not tried, since it could not succeed: {listed(list(pruned), _MOST_LISTED)}."
        yield statement(text, rank=_LEFT_OUT)


def _not_installed(study: StudyState) -> Iterator[Statement]:
    names = study.addable
    if names:
        text = f"Not on this machine, so not measured: {listed(names)}; `deepstone env add {' '.join(names)}` adds "
        yield statement(text + ("it." if len(names) == 1 else "them."), rank=_LEFT_OUT)


def _brief(title: str) -> str:
    """Return the title without axes at their default."""
    defaults = {f"{name}={axis.default}" for name, axis in AXES.items()}
    return " ".join(word for word in title.split() if word not in defaults)


def _shortened(reason: str) -> str:
    brief = " ".join(reason.split())
    return brief if len(brief) <= _MOST_REASON else f"{brief[:_MOST_REASON]}…"


def _doubts(found: Sequence[Case]) -> Iterator[Statement]:
    records = [record for case in found for record in case.good]
    for codes, head, advice in (
        (_WRONG, "Some numbers cannot be right", "Do not use these runs."),
        (
            _DISTURBED,
            "The machine was disturbed",
            "Take small differences with care, or measure again when it is quiet.",
        ),
        (_THIN, "Some measurements are thin", ""),
    ):
        touched = [record for record in records if any(code in codes for code in _codes(record))]
        if not touched:
            continue
        counts = Counter(code for record in touched for code in _codes(record) if code in codes)
        words = [f"{codes[code]} ({number})" for code, number in counts.most_common()]
        share = len(touched) / len(records)
        much = bool(advice) and (share >= _MUCH or codes is _WRONG)
        yield statement(
            f"{head} in {len(touched)} of {len(records)} runs ({percent(share)}): {listed(words)}."
            + (f" {advice}" if much else ""),
            rank=_MUCH_DOUBT if much else _SOME_DOUBT,
            runs=[record.id for record in touched],
        )


def _codes(record: Record) -> set[str]:
    """Return the codes of its doubts. Early records doubt a run for a ceiling that was too low."""
    codes, share = {doubt.code for doubt in record.doubts}, record.share_of_peak
    if "above_peak" not in codes or not isinstance(share, ShareOfPeak):
        return codes
    frameworks = frameworks_in(share.measured_with or "")
    is_low = is_low_ceiling(share.share, str(value_of(record, "device")), frameworks)
    return (codes - {"above_peak"}) | {_LOW_CEILING} if is_low else codes
