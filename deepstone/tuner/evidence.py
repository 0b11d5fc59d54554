"""Rules from records: how much faster one setup was than another, over groups of records, and where that was seen.

    records ─▶ tables: one network, batch and phase on one machine; in it, the cases of each setup
            ─▶ pairs:  each setup against those that it extends, and against the plainest of its table
            ─▶ rules:  the same pair over all tables, split by a fact where tables disagree

Setups are named by what differs from the framework's own choice: `layout=nhwc` in JAX is what `auto` is, and is left
out. Counts of processes and threads are parts of the machine: 4 processes on 16 cores are cores/4.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import field

from deepstone.absent import Absent
from deepstone.analysis.cases import Case, cases, is_measured
from deepstone.analysis.contrast import Contrast, contrast_cases, differences, other_training
from deepstone.analysis.facts import ENVIRONMENT, MACHINE, full_request, machine_name, value_of
from deepstone.measure.ratios import is_above, is_below
from deepstone.results.advice import CORES, Conditions, Device, Facts, MatrixUnits, Rule, Seen
from deepstone.results.parts import Value
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record, Training
from deepstone.results.searched import NO_SEARCHES, Searched
from deepstone.setups.axes import AUTO, AXES, CURRENT, FAKE, TORCH
from deepstone.tuner.facts import facts_of_record

Setup: TypeAlias = Mapping[str, Value]
Words: TypeAlias = frozenset[tuple[str, Value]]
Choices: TypeAlias = Mapping[tuple[str, Device, str], Value]  # of `auto`, by framework, device and axis

# They belong to the workload, not to the way to run it. Of optimizers, only the fused update is a way to run.
WORKLOAD: Final = frozenset({"device", "batch", "phase", "seed", "dropout", "input_grad", "input"})
_FUSED: Final = {"momentum-fused": "momentum"}
_RESOLVED: Final = ("precision", "layout", "engine", "algorithm", "compile")  # axes whose `auto` a framework resolves
_AS_AUTO: Final = ("scheme", "data")
_COUNTS: Final = ("processes", "threads", "inter_threads", "affinity")  # they depend on how many cores there are
_SAME_SCALE: Final = 2  # a rule about cores holds from half to twice as many
_MOST_OVER: Final = 2  # axes of a setup that others are held against
_FEWEST_PER_SIDE: Final = 2  # groups on each side of a split
_WIDEST: Final = 2  # the high over the low end of a gain
_APART: Final = 1.2  # gains that differ by more are worth a split


class Table(msgspec.Struct, kw_only=True):
    """The measured setups of one network, batch and phase on one machine."""

    facts: Facts
    machine: str
    machine_sha: str
    model: str
    setups: dict[Words, list[Case]] = field(default_factory=dict[Words, list[Case]])

    @property
    def plainest(self) -> Words:
        """The default or, where that was not measured, the setup that is nearest to it: in one process, in torch."""
        return min(self.setups, key=_distance_from_default)


def tables(records: Iterable[Record], searched: Searched = NO_SEARCHES) -> list[Table]:
    """Measured runs of current frameworks, by network, batch and phase on one machine; tables of one setup included.
    Setups of runs that a search refused as other training (`searched`: what searches say) are left out."""
    usable = [record for record in records if is_measured(record) and _is_current(record)]
    chosen, units = choices_of_auto(usable), _units(usable)
    found: dict[tuple[object, ...], Table] = {}
    for case in cases(usable, searched):
        if case.refused:
            continue
        record = case.record
        facts = facts_of_record(record)
        if facts.matrix_units is None:
            facts = msgspec.structs.replace(facts, matrix_units=units.get((record.identity.machine_sha, facts.device)))
        request = full_request(record)
        workload = tuple(sorted((axis, request.get(axis, "")) for axis in WORKLOAD - {"device", "seed"}))
        optimizer = _FUSED.get(str(request["optimizer"]), request["optimizer"])
        key = (record.identity.machine_sha, facts.device, record.graph_sha, workload, optimizer)
        table = found.setdefault(
            key,
            Table(
                facts=facts,
                machine=machine_name(record),
                machine_sha=record.identity.machine_sha,
                model=case.model,
            ),
        )
        table.setups.setdefault(words_of(record, chosen), []).append(case)
    return list(found.values())


def _units(records: Iterable[Record]) -> dict[tuple[str, str], MatrixUnits]:
    """Early records lack what later ones of the same machine tell."""
    known = ((record.identity.machine_sha, facts_of_record(record)) for record in records)
    return {(sha, facts.device): facts.matrix_units for sha, facts in known if facts.matrix_units is not None}


def _is_current(record: Record) -> bool:
    """Nobody is advised to use a legacy framework, or a version that was asked for by name."""
    asked = str(record.setup.requested.get("framework", AUTO))
    return "@" not in asked and str(value_of(record, "framework")) in (*CURRENT, FAKE)


def choices_of_auto(records: Iterable[Record]) -> Choices:
    """What frameworks choose on each kind of device where nothing is asked for: by framework, device and axis."""
    found: dict[tuple[str, Device, str], Value] = {}
    for record in records:
        request = full_request(record)
        if all(request[axis] == AUTO for axis in _RESOLVED):
            for axis in _RESOLVED:
                value = value_of(record, axis)
                if isinstance(value, str | int):
                    found[str(value_of(record, "framework")), facts_of_record(record).device, axis] = value
    return found


def words_of(record: Record, chosen: Choices) -> Words:
    """The setup of a run, as the words that make a difference."""
    request, facts = full_request(record), facts_of_record(record)
    framework = str(value_of(record, "framework"))
    given: dict[str, Value] = {}
    for axis, value in request.items():
        if axis in WORKLOAD or axis not in AXES or value == AXES[axis].default:
            continue
        if axis in _RESOLVED and chosen.get((framework, facts.device, axis)) == value:
            continue
        if (axis == "optimizer" and value not in _FUSED) or (axis, value) == _AS_AUTO:
            continue
        given[axis] = value
    given.pop("framework", None)
    if framework != TORCH:
        given["framework"] = framework
    return frozenset(_by_cores(given, facts.cores).items())


def _by_cores(given: dict[str, Value], cores: int | None) -> dict[str, Value]:
    """Counts as parts of the machine; those that `auto` would choose are left out."""
    processes, threads = given.get("processes", 1), given.get("threads", AUTO)
    if cores is None or not isinstance(processes, int):
        return given
    if processes == 1:
        given.pop("processes", None)
    else:
        given["processes"] = _part(processes, cores)
    if isinstance(threads, int):
        if threads * processes == cores:
            given.pop("threads")
        else:
            given["threads"] = _part(threads, cores)
    return given


def _part(count: int, cores: int) -> Value:
    if count == cores:
        return CORES
    return f"{CORES}/{cores // count}" if cores % count == 0 else count


def in_numbers(setup: Setup, cores: int | None) -> dict[str, Value] | None:
    """The setup on a machine with so many cores; None where they are too few, or not known."""
    found = dict(setup)
    for axis, value in setup.items():
        if not str(value).startswith(CORES):
            continue
        divisor = int(str(value).partition("/")[2] or 1)
        if cores is None or cores // divisor < (2 if axis == "processes" else 1):
            return None
        found[axis] = cores // divisor
    return found


class _Pair(msgspec.Struct, frozen=True, kw_only=True):
    over: Words
    setup: Words
    seen: Seen
    facts: Facts


def rules_from(found: Sequence[Table], *, asked: str = "") -> list[Rule]:
    """Rules of all pairs, those with the largest gain first. `asked`: the model that advice is for; what was decided
    about it counts, however wide its interval."""
    pairs: dict[tuple[object, ...], list[_Pair]] = {}
    for table in found:
        for pair in _pairs(table, is_asked=table.model == asked):
            key = (pair.over, pair.setup, _domain(pair))
            pairs.setdefault(key, []).append(pair)
    rules = [rule for several in pairs.values() for rule in _rules(several)]
    return sorted(rules, key=lambda rule: (-rule.gain.median, str(sorted(rule.setup.items()))))


def _pairs(table: Table, *, is_asked: bool) -> Iterable[_Pair]:
    plainest = table.plainest
    for setup in table.setups:
        for over in table.setups:
            extends = over < setup and len(over) <= _MOST_OVER
            if over != setup and (extends or over == plainest):
                seen = _seen(table, setup, over, is_asked=is_asked)
                if seen is not None:
                    yield _Pair(over=over, setup=setup, seen=seen, facts=table.facts)


class _Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One measured ratio of speeds. `turns`: how often both sides ran in turns; 0 when measured apart."""

    turns: int
    when: str
    gain: Quantity
    how: str
    checked: bool
    runs: tuple[str, ...]

    @property
    def vagueness(self) -> float:
        """How wide its interval is, beyond what is wide; 1 where it is not."""
        return max(1.0, self.gain.high / (_WIDEST * self.gain.low))


def _seen(table: Table, setup: Words, over: Words, *, is_asked: bool) -> Seen | None:
    """The best of all ratios: measured in turns rather than apart, not vague, of most turns, then the newest."""
    found = [
        measured
        for a in table.setups[setup]
        for b in table.setups[over]
        if not other_training(a, b)
        for measured in (*_compared(a, b), *_contrasted(a, b))
        if _says_something(measured, is_disturbed=a.is_disturbed or b.is_disturbed, is_asked=is_asked)
    ]
    if not found:
        return None
    best = max(found, key=lambda each: (each.turns > 0, -each.vagueness, each.turns, each.when))
    return Seen(
        machine=table.machine,
        machine_sha=table.machine_sha,
        model=table.model,
        batch=table.facts.batch,
        gain=_rounded(best.gain),
        how=best.how,
        checked=best.checked,
        records=list(best.runs),
        rounds=best.turns,
    )


def _says_something(measured: _Measured, *, is_disturbed: bool, is_asked: bool) -> bool:
    """A wide interval of runs during which others used the machine says how busy it was, even of runs in turns. Of the
    model that is asked about, turns that show which side is faster are what there is to say all the same."""
    gain = measured.gain
    if not gain.has_interval or not math.isfinite(gain.high) or gain.low <= 0:
        return False
    is_decided = measured.turns > 0 and (is_above(gain) or is_below(gain))
    return not is_disturbed or measured.vagueness == 1 or (is_asked and is_decided)


def _compared(a: Case, b: Case) -> Iterable[_Measured]:
    """What `compare` measured between them: the ratio is the time of its first side over that of another."""
    for first, other, invert in ((b, a, False), (a, b, True)):
        others = {record.job: record for record in other.good}
        for record in first.good:
            compared = record.comparison
            if isinstance(compared, Absent) or compared.side != "a" or compared.other_job not in others:
                continue
            yield _Measured(
                turns=compared.pairs,
                when=record.started_at,
                gain=compared.ratio.inverse(1.0) if invert else compared.ratio,
                how=f"compare, {compared.pairs} pairs of fresh processes",
                checked=not isinstance(compared.sameness, Absent) or _has_losses(a, b),
                runs=(others[compared.other_job].id, record.id),
            )


def _contrasted(a: Case, b: Case) -> Iterable[_Measured]:
    found = _contrast(a, b)
    if found is not None:
        yield _Measured(
            turns=found.rounds,
            when=min(a.record.started_at, b.record.started_at),
            gain=found.speed_ratio,
            how=found.how,
            checked=_has_losses(a, b),
            runs=found.runs,
        )


def _has_losses(a: Case, b: Case) -> bool:
    """Whether both tell their losses, which the comparison of records then held against each other."""
    return all(isinstance(case.record.training, Training) for case in (a, b))


def _contrast(a: Case, b: Case) -> Contrast | None:
    axes = differences(a.record, b.record).axes
    if {MACHINE, ENVIRONMENT, "seed"} & set(axes):
        return None
    found = contrast_cases(a, b, differ_in=axes)
    return None if isinstance(found, Absent) else found


def _rounded(gain: Quantity) -> Quantity:
    return Quantity.of(median=_digits(gain.median), low=_digits(gain.low), high=_digits(gain.high), n=gain.n)


def _digits(number: float) -> float:
    return float(f"{number:.4g}")


def _domain(pair: _Pair) -> tuple[object, ...]:
    """The facts without which a gain says nothing: the device, the units for narrow numbers, the number of cores."""
    facts, axes = pair.facts, {axis for axis, _ in pair.setup}
    units = facts.matrix_units if "precision" in axes else None
    cores = facts.cores if axes & set(_COUNTS) else None
    return facts.device, facts.phase, units, cores


def _rules(pairs: Sequence[_Pair]) -> list[Rule]:
    """One rule or, where a fact separates groups that disagree, one for each side of it."""
    for side in _SPLITS:
        low, high = ([pair for pair in pairs if side.of(pair.facts) is value] for value in (False, True))
        if min(len(low), len(high)) >= _FEWEST_PER_SIDE and _disagree(low, high):
            return [_rule(low, side.where(False)), _rule(high, side.where(True))]
    return [_rule(pairs, {})]


class _Split(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that is true or false of a group, and the condition that says so."""

    of: Callable[[Facts], bool | None]
    where: Callable[[bool], Mapping[str, bool | int]]


def _by_batch(limit: int) -> _Split:
    return _Split(
        of=lambda facts: facts.batch >= limit,
        where=lambda side: {"least_batch": limit} if side else {"most_batch": limit - 1},
    )


_SPLITS: Final = (
    _Split(of=lambda facts: facts.batch_norm, where=lambda side: {"batch_norm": side}),
    *(_by_batch(limit) for limit in (16, 64, 256)),
)


def _disagree(low: Sequence[_Pair], high: Sequence[_Pair]) -> bool:
    """Whether no gain of one side lies among those of the other, and the sides are far apart."""
    a, b = ([pair.seen.gain.median for pair in side] for side in (low, high))
    return (max(a) * _APART < min(b)) or (max(b) * _APART < min(a))


def _rule(pairs: Sequence[_Pair], more: Mapping[str, bool | int]) -> Rule:
    _, _, units, cores = _domain(pairs[0])
    facts = pairs[0].facts
    seen = [pair.seen for pair in pairs]
    when = {"device": facts.device, "phase": facts.phase, "matrix_units": units, **more}
    if isinstance(cores, int):
        when |= {"least_cores": max(1, cores // _SAME_SCALE), "most_cores": cores * _SAME_SCALE}
    return Rule(
        when=_conditions(when),
        over=dict(sorted(pairs[0].over)),
        setup=dict(sorted(pairs[0].setup)),
        gain=gain_over_groups([each.gain for each in seen]),
        seen=seen,
    )


def _conditions(when: Mapping[str, object]) -> Conditions:
    return msgspec.convert({name: value for name, value in when.items() if value is not None}, Conditions)


def gain_over_groups(gains: Sequence[Quantity]) -> Quantity:
    """The median over groups, from the lowest end of their intervals to the highest; n counts the groups."""
    return Quantity.of(
        median=_digits(statistics.median(gain.median for gain in gains)),
        low=min(gain.low for gain in gains),
        high=max(gain.high for gain in gains),
        n=len(gains),
    )


def _distance_from_default(words: Words) -> tuple[int, bool, bool, str]:
    axes = {axis for axis, _ in words}
    return len(words), "processes" in axes, "framework" in axes, str(sorted(words, key=str))
