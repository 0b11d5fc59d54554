"""Rules on the speed of one setup or device over another, from runs in rounds if there are any, else measured apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import ClassVar, Literal, TypeAlias

import msgspec

from deepstone.absent import Absent
from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import Contrast, contrast_cases, differences
from deepstone.analysis.facts import ENVIRONMENT, MACHINE, value_of, version_of
from deepstone.papers.answer import Answer, in_words, not_testable
from deepstone.papers.conv_lab import FP32
from deepstone.papers.evidence import Evidence
from deepstone.papers.place import Place
from deepstone.papers.rules.rule import RuleOnModels, Scope
from deepstone.papers.verdict import Judgement, Published, of_equality, of_rank, of_ratio, of_small_lead
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import AXES, Value

_FAR = 1.25
_NAMED = ("framework", "batch", "phase", "precision", "device")  # named in every answer
_DEVICE_AXES = ("device", MACHINE, ENVIRONMENT)


class _Pair(msgspec.Struct, frozen=True, kw_only=True):
    a: Case
    b: Case
    contrast: Contrast

    @property
    def ratio(self) -> Quantity:
        """Return the ratio. Processes of one setup differ, so measured apart it has a wider interval."""
        found = self.contrast
        return found.speed_ratio.widened(found.margin) if found.apart else found.speed_ratio

    @property
    def setup(self) -> str:
        workload = self.a.record.workload
        changed = " ".join(f"{axis}={value_of(self.a.record, axis)}" for axis in self.contrast.axes)
        other = " ".join(f"{axis}={value_of(self.b.record, axis)}" for axis in self.contrast.axes)
        name = f"{value_of(self.a.record, 'framework')} {version_of(self.a.record)}"
        common = _common_settings(self.a, self.contrast.axes)
        what = f"{workload.model}, batch {workload.batch}, {workload.phase}, {name}{common}"
        return f"{what}: {changed} against {other}"


_DevicePair: TypeAlias = tuple[Place, Place, _Pair]


class SpeedRatio(RuleOnModels, frozen=True, kw_only=True):
    """Setup `a` over setup `b`. `fixed`: values of both. `b_default`: axes that b must leave at their default.

    `best`: judge the pair that gains most. `beyond`: further axes, whose gain is a remark.
    """

    words: ClassVar[str] = (
        "Images/s of setup a over those of setup b, which differ in the named axes alone. In rounds where both ran in "
        "at least two; else apart, and then the interval is made wider by what two processes of one setup may differ "
        "by. With `best`, the pair whose interval has the highest lower end."
    )
    scope: ClassVar[Scope] = "place"
    fixed: dict[str, Value] = msgspec.field(default_factory=dict[str, Value])
    a: dict[str, Value] = msgspec.field(default_factory=dict[str, Value])
    b: dict[str, Value] = msgspec.field(default_factory=dict[str, Value])
    b_default: tuple[str, ...] = ()
    differ_in: list[str]
    best: bool = False
    judged: Literal["at least", "equal", "rank"] = "at least"
    beyond: dict[str, Value] = msgspec.field(default_factory=dict[str, Value])

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        found = list(self._pairs(evidence))
        if not found:
            compared = " and ".join(self.differ_in)
            why = self._refusal(evidence) or f"no runs that differ in {compared} alone"
            return not_testable(f"{why}: {self._needed_runs()}")
        chosen = _best(found) if self.best else found[0]
        judged = self._judged(published, chosen.ratio)
        return Answer(
            word=judged.word,
            why=(
                f"{in_words(chosen.ratio)} times as fast, {chosen.contrast.how}; {judged.why}{_doubts(chosen.contrast)}"
            ),
            measured=chosen.ratio,
            setup=chosen.setup,
            runs=chosen.contrast.runs,
        ).noting(self._beyond(evidence, chosen))

    def _pairs(self, evidence: Evidence, *, changed: Collection[str] = ()) -> Iterator[_Pair]:
        """Yield the comparable pairs of the first model that has any; those in rounds before those measured apart.

        Order: large batches first, then fp32, the precision of the papers, then the fewest other settings, then the
        newest.

        With `changed`, only those that differ in all of these axes.
        """
        for model in self.models:
            found = [
                _Pair(a=a, b=b, contrast=contrast)
                for a, b in self._candidates(evidence, model)
                if isinstance(contrast := contrast_cases(a, b, differ_in=self.differ_in), Contrast)
                and set(changed) <= set(contrast.axes)
            ]
            if found:
                in_rounds = [pair for pair in found if not pair.contrast.apart]
                yield from sorted(in_rounds or found, key=_preference)
                return

    def _candidates(self, evidence: Evidence, model: str) -> Iterator[tuple[Case, Case]]:
        cases = [case for _, case in evidence.cases if case.model == model and _matches(case, self.fixed)]
        firsts = [case for case in cases if _matches(case, self.a)]
        seconds = [case for case in cases if _matches(case, self.b)]
        return product(firsts, [case for case in seconds if _at_defaults(case, self.b_default)])

    def _refusal(self, evidence: Evidence) -> str:
        """Return why the first two that differ in nothing else were not compared."""
        for model in self.models:
            for a, b in self._candidates(evidence, model):
                axes = differences(a.record, b.record).axes
                contrast = contrast_cases(a, b, differ_in=self.differ_in)
                if a.good and b.good and axes and set(axes) <= set(self.differ_in) and isinstance(contrast, Absent):
                    return contrast.reason
        return ""

    def _judged(self, published: Published, ratio: Quantity) -> Judgement:
        match self.judged:
            case "equal":
                return of_equality(ratio, far=_FAR)
            case "rank":
                return of_rank(ratio)
            case _:
                return of_ratio(ratio, published.number, published.bound)

    def _beyond(self, evidence: Evidence, judged: _Pair) -> str:
        """Describe the gain of further axes that the paper did not change: alone, and together with the options."""
        further = self.beyond
        if not further:
            return ""
        names = " and ".join(further)
        same = {axis: value_of(judged.a.record, axis) for axis in ("framework", "batch")}
        base = msgspec.structs.replace(self, fixed={**self.fixed, **same}, b={**self.b, **further})
        added = msgspec.structs.replace(base, b_default=(), differ_in=list(further))
        separate = list(added._pairs(evidence, changed=further))
        if not separate:
            return f"what {names} would add was not measured here"
        joint = msgspec.structs.replace(base, differ_in=[*self.differ_in, *further])
        together = list(joint._pairs(evidence, changed=further))
        text = f"{names} would add {_gain(_best(separate))}"
        return f"{text}; with the options together {_gain(_best(together))}" if together else text

    def _needed_runs(self) -> str:
        fixed = " ".join(f"{axis}={value}" for axis, value in self.fixed.items())
        return f"{' or '.join(self.models)}{' ' + fixed if fixed else ''}"


class DeviceRatio(RuleOnModels, frozen=True, kw_only=True):
    """Kind of device `over` against the other: the same network, batch and precision on both."""

    words: ClassVar[str] = (
        "Images/s of training on one kind of device over the other, from runs alike but for device, machine and "
        "versions, at the same precision, neither with native kernels, measured apart. A CPU of fewer cores than "
        "`least_cores` does not test a claim about many-core CPUs. A published lead is one of comparable devices: a "
        "larger one does not confirm it, and one beyond the factor `far` reverses it."
    )
    scope: ClassVar[Scope] = "all"
    over: str
    least_cores: int
    gpus: tuple[str, ...] = ()
    far: float = math.inf

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        gpus, least = self.gpus, self.least_cores
        found = [entry for entry in self._pairs(evidence) if not gpus or _is_one_of(_gpu(entry), gpus)]
        if not found:
            named = f" ({' or '.join(gpus)})" if gpus else ""
            machines = Counter(place.name for place in evidence.places)
            named_once = (name if number == 1 else f"{name} ({number} machines)" for name, number in machines.items())
            there = "; ".join(named_once) or "nothing"
            return not_testable(
                f"needs runs of {' or '.join(self.models)} on a CPU and on a GPU{named}, alike but for the "
                f"device, at the same precision, neither with native kernels; there are runs of: {there}"
                f"{self._refusal(evidence)}"
            )
        many_core = [entry for entry in found if (_cores(entry) or 0) >= least]
        place_a, place_b, pair = chosen = max(many_core or found, key=_shown_most)
        ratio = pair.ratio
        compared = f"{place_a.name} is {in_words(ratio)} times as fast as {place_b.name}"
        if not many_core:
            cores = _cores(chosen)
            counted = "a CPU of unknown size is" if cores is None else f"{cores} cores are"
            return not_testable(
                f"{compared}, but {counted} not the many-core CPU that the claim is about: at least {least} cores are "
                "asked for",
                setup=_device_setup(chosen),
                measured=ratio,
            )
        judged = self._judged(published, ratio)
        doubts = f"; doubts: {', '.join(pair.contrast.doubts)}" if pair.contrast.doubts else ""
        return Answer(
            word=judged.word,
            why=f"{compared}, {pair.contrast.how}; {judged.why}{doubts}",
            measured=ratio,
            setup=_device_setup(chosen),
            runs=pair.contrast.runs,
        )

    def _judged(self, published: Published, ratio: Quantity) -> Judgement:
        if published.value is None:
            return of_rank(ratio)
        return of_small_lead(ratio, published.value, published.bound, far=self.far)

    def _pairs(self, evidence: Evidence) -> Iterator[_DevicePair]:
        for (place_a, a), (place_b, b) in self._candidates(evidence):
            contrast = contrast_cases(a, b, differ_in=_DEVICE_AXES)
            # Settings that both leave to the framework may depend on the device, except the precision.
            if not isinstance(contrast, Absent) and "precision" not in contrast.follow:
                yield place_a, place_b, _Pair(a=a, b=b, contrast=contrast)

    def _refusal(self, evidence: Evidence) -> str:
        """Return why similar runs were not compared, if there are any."""
        reasons = {
            contrast.reason
            for (_, a), (_, b) in self._candidates(evidence)
            if a.good and b.good and set(differences(a.record, b.record).axes) <= set(_DEVICE_AXES)
            if isinstance(contrast := contrast_cases(a, b, differ_in=_DEVICE_AXES), Absent)
        }
        return f"; {min(reasons)}" if reasons else ""

    def _candidates(self, evidence: Evidence) -> Iterator[tuple[tuple[Place, Case], tuple[Place, Case]]]:
        for model in self.models:
            cases = [(place, case) for place, case in evidence.cases if case.model == model and _is_optimized(case)]
            over = [entry for entry in cases if entry[0].kind == self.over]
            yield from product(over, [entry for entry in cases if entry[0].kind != self.over])


def _preference(pair: _Pair) -> tuple[int, bool, int]:
    """Sort key: the smallest comes first."""
    return (
        -pair.a.record.workload.batch,
        value_of(pair.a.record, "precision") != FP32,
        len(_other_settings(pair.b, pair.contrast.axes)),
    )


def _best(found: list[_Pair]) -> _Pair:
    """Return the pair with the largest gain, by the lower end of its interval."""
    return max(found, key=lambda pair: pair.ratio.low)


def _gain(pair: _Pair) -> str:
    apart = ", measured apart" if pair.contrast.apart else ""
    return f"{in_words(pair.ratio)} ({pair.setup}{apart})"


def _matches(case: Case, required: Mapping[str, Value]) -> bool:
    return all(value_of(case.record, axis) == value for axis, value in required.items())


def _at_defaults(case: Case, axes: Sequence[str]) -> bool:
    return all(case.record.setup.requested.get(axis, "auto") == "auto" for axis in axes)


def _common_settings(case: Case, axes: tuple[str, ...]) -> str:
    """Describe the settings of both sides that are not defaults."""
    requested = case.record.setup.requested
    precision = requested.get("precision", "auto")
    shown = [] if precision == "auto" or "precision" in axes else [str(precision)]
    shown += [f"{axis}={requested[axis]}" for axis in _other_settings(case, axes)]
    return "".join(f", {each}" for each in shown)


def _other_settings(case: Case, axes: tuple[str, ...]) -> list[str]:
    """Return the settings that are not defaults, except those compared; the papers mostly changed one at a time."""
    requested = case.record.setup.requested
    others = [axis for axis in requested if axis in AXES and axis not in (*axes, *_NAMED)]
    return [axis for axis in others if requested[axis] != AXES[axis].default]


def _doubts(found: Contrast) -> str:
    return f"; doubts: {', '.join(found.doubts)}" if found.doubts else ""


def _is_optimized(case: Case) -> bool:
    """Whether it trains, with the device's own library if the framework has a choice."""
    return case.record.workload.phase == "train" and value_of(case.record, "engine") != "native"


def _shown_most(entry: _DevicePair) -> tuple[float, tuple[str, ...]]:
    """Sort by the lower end of the interval; ties are broken by name, never by the order of reading."""
    return entry[2].ratio.low, entry[2].contrast.runs


def _device_setup(entry: _DevicePair) -> str:
    place_a, place_b, pair = entry
    workload = pair.a.record.workload
    sides = " over ".join(
        f"{place.name} with {value_of(case.record, 'framework')} {version_of(case.record)}"
        for place, case in ((place_a, pair.a), (place_b, pair.b))
    )
    precision = value_of(pair.a.record, "precision")
    return f"{workload.model}, batch {workload.batch}, {workload.phase}, {precision}: {sides}"


def _cores(entry: _DevicePair) -> int | None:
    return next(place.cores for place in entry[:2] if place.kind == "cpu")


def _gpu(entry: _DevicePair) -> str:
    return next(place.name for place in entry[:2] if place.kind == "gpu")


def _is_one_of(name: str, names: Sequence[str]) -> bool:
    return any(part.lower() in name.lower() for part in names)
