"""Formats numbers and settings for sentences: always with the interval, always the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.analysis.cases import Case
from deepstone.analysis.facts import machine_key, release_of, value_of, year_of
from deepstone.analysis.one_factor import Star
from deepstone.results.claim import NO_RATIO, Statement
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import AXES
from deepstone.units import digits

_NAMES: Final = {"onednn": "oneDNN", "cudnn": "cuDNN", "xla": "XLA", "native": "native kernels", "mkl": "MKL"}
_VERBS: Final = {"train": "trains", "forward": "runs forward", "gradient": "computes gradients"}
_NOUNS: Final = {"train": ("training", ""), "forward": ("running", " forward"), "gradient": ("gradients of", "")}
_ABSURD: Final = 100.0  # times its low end
_FEWEST: Final = 3  # values of which an interval tells something
_NOT_SETTINGS: Final = frozenset({"framework", "device", "batch", "phase", "seed", "input"})


def statement(
    text: str,
    *,
    rank: float,
    runs: Iterable[str] = (),
    findings: Iterable[str] = (),
    ratio: Quantity | Absent = NO_RATIO,
    how: str = "",
    advice: str | None = None,
) -> Statement:
    """Make a statement with its evidence, each run and finding once."""
    return Statement(
        text=text,
        rank=rank,
        runs=list(dict.fromkeys(runs)),
        findings=list(dict.fromkeys(findings)),
        ratio=ratio,
        how=how,
        advice=advice,
    )


def times(ratio: Quantity) -> str:
    """2.1x (2.05 – 2.17)."""
    return f"{digits(ratio.median)}x ({span(ratio)})"


def rate(case: Case) -> str:
    """42.3 images/s (41.0 – 43.6), for a measured case; a few samples give no useful interval."""
    speed = case.samples_per_s
    assert isinstance(speed, Quantity)
    workload = case.record.workload
    speed = speed.scaled(workload.things_per_sample)
    told = f"{digits(speed.median)} {workload.things}/s"
    if case.is_thin:
        few = "one launch of a search" if case.good[0].is_look else counted(speed.n, "sample")
        return f"about {told} ({few} only)"
    return f"{told} ({span(speed)})"


def span(value: Quantity, shown: Callable[[float], str] = digits) -> str:
    """41 – 43.6, or why there is no interval. One over many powers of ten tells nothing."""
    if value.has_interval and 0 < _ABSURD * value.low < value.high:
        return "too few values for an interval" if value.n < _FEWEST else "too uneven for an interval"
    return value.span_in_words(shown)


def verb(star: Star) -> str:
    """Return the verb after the network's name: trains, runs forward."""
    return _VERBS[star.phase]


def doing(star: Star) -> str:
    """The same as a noun: training alexnet-owt, running alexnet-owt forward."""
    before, after = _NOUNS[star.phase]
    return f"{before} {star.model}{after}"


def on_machine(star: Star, machines: Mapping[tuple[str, str], str]) -> str:
    """Return " on Intel Xeon, 2 cores" if there are several machines."""
    return f" on {machines[machine_key(star.base.record)]}" if len(machines) > 1 else ""


def framework(case: Case) -> str:
    """torch 2.11.0, tensorflow 1.12.0-intel."""
    return f"{value_of(case.record, 'framework')} {release_of(case.record)}".strip()


def releases(*compared: Case) -> tuple[str, ...]:
    """Return each framework with its version, and with its year if years differ: tensorflow 1.2.1 of 2017."""
    years = [year_of(case.record) for case in compared]
    known = [year for year in years if isinstance(year, int)]
    differ = len(known) == len(years) and len(set(known)) > 1
    return tuple(
        f"{framework(case)} of {year}" if differ else framework(case)
        for case, year in zip(compared, years, strict=True)
    )


def value(case: Case, axis: str) -> str:
    """Format a value of an axis: NHWC, oneDNN, 2 threads, bf16-mixed, compile=default."""
    found = value_of(case.record, axis)
    if axis == "layout":
        return str(found).upper()
    if axis == "engine":
        return _NAMES.get(str(found), str(found))
    if axis == "precision":
        return str(found)
    if axis == "threads" and isinstance(found, int):
        return counted(found, "thread")
    if axis == "batch":
        return f"batch {found}"
    return f"{axis}={found}"


def values(case: Case, axes: Iterable[str]) -> str:
    """bf16-mixed with NHWC."""
    first, *others = [value(case, axis) for axis in axes]
    return first + (f" with {listed(others)}" if others else "")


def base_words(star: Star) -> str:
    """Return "the default", or the base with its settings if the framework did not choose them."""
    chosen = chosen_axes(star)
    return f"the base ({values(star.base, chosen)})" if chosen else "the default"


def chosen_axes(star: Star) -> list[str]:
    """Return the settings of the base that are not defaults."""
    requested = star.base.record.setup.requested
    known = [axis for axis in AXES if axis in requested and axis not in _NOT_SETTINGS]
    return [axis for axis in known if requested[axis] != AXES[axis].default]


def in_effect(case: Case) -> str:
    """Return the effective settings of a default: batch 32, fp32, NCHW, oneDNN, 2 threads."""
    axes = ["batch", "precision", "layout", "engine"]
    if str(value_of(case.record, "device")) == "cpu":
        axes.append("threads")
    if value_of(case.record, "compile") not in ("off", "auto"):
        axes.append("compile")
    known = [axis for axis in axes if value_of(case.record, axis) not in ("auto", "not used")]
    return ", ".join(value(case, axis) for axis in known)


def listed(words: Sequence[str], most: int = 12) -> str:
    """Format as "a, b and c"; a long list is cut, with the number of the rest."""
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def share(found: Quantity) -> str:
    """66.2 % (65.8 – 66.6 %)."""
    ends = span(found, lambda end: digits(100 * end))
    return f"{digits(100 * found.median)} % ({ends}{' %' if found.has_interval else ''})"


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def capital(text: str) -> str:
    """Capitalize the start of a sentence; names that start with a small letter do not change."""
    return text if text.startswith(("oneDNN", "cuDNN", "bf16", "fp", "tf32")) else text[:1].upper() + text[1:]
