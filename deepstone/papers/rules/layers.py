"""Rules on layers: their share of a step, their order between devices, small operations; and a device's copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from deepstone.absent import Absent
from deepstone.analysis.contrast import LEAST_APART
from deepstone.measure.statistics import difference_of_bounds, ratio_of_bounds, sum_of_bounds
from deepstone.papers.answer import Answer, in_words, not_testable, share, share_in_words
from deepstone.papers.evidence import Evidence
from deepstone.papers.layer_table import LayerRow, LayerTable
from deepstone.papers.rules.rule import Rule, RuleOnModels, Scope
from deepstone.papers.verdict import Bound, Judgement, Published, of_parts, of_rank, of_ratio, of_share, of_shortfall
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import AXES
from deepstone.units import count, digits, percent, seconds

# Axes that depend on the device, and those whose effective values are compared.
_FREE: Final = frozenset({"device", "framework", "precision", "threads", "inter_threads", "affinity", "isa"})
_FP32: Final = "fp32"
_NO_END: Final = "a lower end: in the fastest framework it may take no time"


class ShareOfTime(RuleOnModels, frozen=True, kw_only=True):
    """`remarks`: added to the answer, by network."""

    words: ClassVar[str] = (
        "Time of the convolutions over that of all layers, forward and backward, over all of the networks, batches and "
        "frameworks in the case where it is largest: whose interval has the highest lower end."
    )
    scope: ClassVar[Scope] = "place"
    op: str
    remarks: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        tables = [table for table in evidence.tables if table.model in self.models and table.phase != "forward"]
        shares = [(table, part) for table in tables if (part := _share_of_op(table, self.op)) is not None]
        if not shares:
            return not_testable(f"no layers were timed here: `deepstone layers {self.models[0]}`", unit="share")
        # Ties are broken by name, never by the order of reading.
        table, part = max(shares, key=lambda entry: (entry[1].low, entry[1].median, entry[0].words, entry[0].id))
        judged = of_share(part, published.number)
        smallest = min(share.median for _, share in shares)
        among = f", the largest of {len(shares)} cases (the smallest: {percent(smallest)})" if len(shares) > 1 else ""
        return Answer(
            word=judged.word,
            why=f"{share_in_words(part)} of the layers' time, forward and backward{among}; {judged.why}",
            measured=part,
            unit="share",
            setup=table.words,
            findings=(table.id,),
        ).noting(self.remarks.get(table.model, ""))


class LayerRanks(RuleOnModels, frozen=True, kw_only=True):
    """On which layer a CPU does best against a GPU: an order of layers, which does not need comparable devices."""

    words: ClassVar[str] = (
        "Each layer's time on the CPU over that on the GPU; then that ratio of the next best layer over that of the "
        "layer which the paper names as the CPU's best. Above 1 the order is as published. Both at the same batch and "
        "precision, set up alike."
    )
    scope: ClassVar[Scope] = "all"
    favoured: str
    others: list[str]
    part: str

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        favoured, others, part = self.favoured, self.others, self.part
        candidates = self._device_pairs(evidence)
        tables = next((pair for pair in candidates if _precision(pair[0]) == _precision(pair[1])), None)
        if tables is None:
            return not_testable(
                f"needs layers of {' or '.join(self.models)} on a CPU and on a GPU at the same batch and "
                f"precision{_other_precision(candidates)}"
            )
        cpu, gpu = tables
        slower: dict[str, Quantity] = {}
        for name in (favoured, *others):
            rows = [table.row(name) for table in tables]
            times = [row.time_s(part) for row in rows if row is not None]
            known = [time for time in times if time is not None]
            if len(known) < 2:
                return not_testable(f"{name} was not timed {part} on both", setup=cpu.words)
            slower[name] = ratio_of_bounds(*known)
        nearest = min(others, key=lambda name: slower[name].median)
        lead = ratio_of_bounds(slower[nearest], slower[favoured]).widened(LEAST_APART["cpu"])  # processes of their own
        judged = of_rank(lead)
        listed = ", ".join(
            f"{name} {digits(slower[name].median)}" for name in sorted(slower, key=lambda n: slower[n].median)
        )
        return Answer(
            word=judged.word,
            why=(
                f"the CPU's time over the GPU's, {part}: {listed}; that of {nearest} is {in_words(lead)} times that of "
                f"{favoured}: {judged.why}"
            ),
            measured=lead,
            setup=f"{cpu.words} on {cpu.place.name} against {gpu.words} on {gpu.place.name}",
            findings=(cpu.id, gpu.id),
        )

    def _device_pairs(self, evidence: Evidence) -> list[tuple[LayerTable, LayerTable]]:
        """Return pairs with the same training in the same framework on both; the precision may differ.

        Order: the network that the paper names first, then the largest batch, then the newest.
        """
        found: list[tuple[LayerTable, LayerTable]] = []
        for model in self.models:
            tables = [table for table in evidence.tables if table.model == model and _is_optimized(table)]
            of_cpu, of_gpu = ([table for table in tables if table.place.kind == kind] for kind in ("cpu", "gpu"))
            pairs = [(cpu, gpu) for cpu in of_cpu for gpu in of_gpu if _is_alike(cpu, gpu)]
            found += sorted(pairs, key=lambda pair: (pair[0].batch, *(_age(table) for table in pair)), reverse=True)
        return found


class Operation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small operation: the time of a layer, or the difference of two layers, with it and `without`."""

    models: list[str]
    layer: str
    without: str = ""
    published: float


class OperationAcrossFrameworks(Rule, frozen=True, kw_only=True):
    """How much small operations differ between frameworks: slowest over fastest, isolated on the same shapes."""

    words: ClassVar[str] = (
        "Time of small operations forward, each isolated, in the slowest over the fastest of the paper's frameworks "
        "and their descendants, at the same batch, number format and threads; without those whose time holds more "
        "than the operation; with the wider interval of what was measured apart. The bias is the difference of "
        "two convolutions of one pixel, with it and without. Each operation is judged by itself, then all together."
    )
    scope: ClassVar[Scope] = "place"
    operations: dict[str, Operation]
    frameworks: list[str]

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        parts = {name: self._judged(each, published.bound, evidence) for name, each in self.operations.items()}
        judged = [part for part in parts.values() if part.judged is not None]
        why = "; ".join(f"{name}: {part.text}" for name, part in parts.items())
        if not judged:
            return not_testable(f"{why}; `deepstone env add tensorflow theano` gives two")
        used = [found for part in judged for found in part.used]
        spread = judged[0].spread
        assert spread is not None
        return Answer(
            word=of_parts([part.judged for part in judged if part.judged is not None]),
            why=why,
            measured=Quantity.without_interval(spread.median, n=spread.n, why=_NO_END)
            if math.isinf(spread.high)
            else spread,
            setup="; ".join(
                dict.fromkeys(f"{found.table.model}, {_conditions_in_words(found)}, isolated" for found in used)
            ),
            findings=tuple(dict.fromkeys(found.table.id for found in used)),
        )

    def _judged(self, given: Operation, bound: Bound, evidence: Evidence) -> _Judged:
        wanted = self.frameworks
        others: dict[str, None] = {}
        for model in given.models:
            groups: dict[tuple[int, str, int], dict[str, _Timed]] = {}
            left_out: dict[str, str] = {}
            for table in [table for table in evidence.tables if table.model == model]:
                time_s = _time_s(table, given)
                if isinstance(time_s, Absent):
                    left_out |= {table.framework: time_s.reason} if time_s.reason else {}
                    continue
                found = _Timed(table=table, time_s=time_s, conditions=_conditions(table))
                if found.name in wanted:
                    groups.setdefault(found.conditions, {}).setdefault(table.framework, found)
                else:
                    others.setdefault(table.framework)
            chosen = max(groups.values(), key=_preference) if groups else {}
            if len(_names(chosen)) > 1:
                others_timed = {name: each for group in groups.values() for name, each in group.items()}
                elsewhere = {name: each for name, each in others_timed.items() if name not in chosen}
                left_out |= {name: f"it ran {_conditions_in_words(each)}" for name, each in elsewhere.items()}
                left_out = {name: why for name, why in left_out.items() if name.split()[0] in wanted}
                lacking = [name for name in wanted if name not in _names(chosen)]
                return _judged_operation(given.published, bound, chosen, left_out, lacking)
        there = f"; there are times of {', '.join(sorted(others))}, which it did not compare" if others else ""
        return _Judged(
            text=f"not timed under equal conditions in two of the paper's frameworks and their descendants "
            f"({', '.join(wanted)}){there}"
        )


class ShareOfBandwidth(Rule, frozen=True, kw_only=True):
    """The share of the nominal bandwidth that a copy reaches. `peak_bytes_per_s`: by name of the device."""

    words: ClassVar[str] = (
        "The fastest copy on the device, bytes read and written, over its bandwidth as its maker states it; judged by "
        "what is missing, on both sides."
    )
    scope: ClassVar[Scope] = "place"
    peak_bytes_per_s: dict[str, float]

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        if not evidence.copies:
            return not_testable("no copy was measured here: `deepstone doctor --peaks`", unit="share")
        fastest = max(evidence.copies, key=lambda copy: (copy.bytes_per_s.median, copy.id))
        device = fastest.place.name.lower()
        peak = next((value for name, value in self.peak_bytes_per_s.items() if name.lower() in device), None)
        reached = count(fastest.bytes_per_s.median, "B/s")
        if peak is None:
            return not_testable(
                f"a copy reaches {reached}, but the bandwidth of {fastest.place.name} on paper is not known",
                unit="share",
            )
        part = fastest.bytes_per_s.scaled(1 / peak)
        judged = of_shortfall(part, published.number)
        return Answer(
            word=judged.word,
            why=f"a copy reads and writes {reached} of {count(peak, 'B/s')}, {percent(part.median)}; {judged.why}",
            measured=part,
            unit="share",
            setup=f"copy on the device, {fastest.measured_with}",
            findings=(fastest.id,),
        )


class _Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One framework's time of the operation, and the conditions that others must share to be comparable."""

    table: LayerTable
    time_s: Quantity
    conditions: tuple[int, str, int]  # batch, number format, threads

    @property
    def name(self) -> str:
        """Return the framework without its version."""
        return self.table.framework.split()[0]


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: judged, or `spread` is None and `text` says why not."""

    text: str
    spread: Quantity | None = None
    judged: Judgement | None = None
    used: tuple[_Timed, ...] = ()


def _share_of_op(table: LayerTable, op: str) -> Quantity | None:
    """Return None if a layer's time includes overhead of unknown size."""
    if any(row.overhead and row.forward_s == row.isolated_forward_s for row in table.rows):
        return None
    inside = [time for row in table.rows if row.op == op for time in _passes(row)]
    outside = [time for row in table.rows if row.op != op for time in _passes(row)]
    return share(sum_of_bounds(inside), sum_of_bounds(outside)) if inside and outside else None


def _passes(row: LayerRow) -> list[Quantity]:
    return [time for time in (row.forward_s, row.backward_s) if time is not None]


def _is_optimized(table: LayerTable) -> bool:
    """Whether it trains, with the device's own library if the framework has a choice."""
    return table.phase == "train" and table.setup.get("engine") != "native"


def _is_alike(cpu: LayerTable, gpu: LayerTable) -> bool:
    if cpu.batch != gpu.batch or cpu.framework.split()[0] != gpu.framework.split()[0]:
        return False
    return all(
        cpu.asked.get(name, axis.default) == gpu.asked.get(name, axis.default)
        for name, axis in AXES.items()
        if name not in _FREE
    )


def _age(table: LayerTable) -> tuple[str, str, str]:
    return table.started_at, table.id, table.framework


def _precision(table: LayerTable) -> str:
    """Return the effective precision, which may depend on the device: a GPU computes convolutions in TF32 by
    default."""
    return str(table.setup.get("precision", ""))


def _other_precision(pairs: list[tuple[LayerTable, LayerTable]]) -> str:
    if not pairs:
        return ""
    cpu, gpu = pairs[0]
    return (
        f"; those of {cpu.model} at batch {cpu.batch} are in {_precision(cpu)} on {cpu.place.name} and in "
        f"{_precision(gpu)} on {gpu.place.name}: `deepstone layers {gpu.model} batch={gpu.batch} precision=fp32` there"
    )


def _time_s(table: LayerTable, given: Operation) -> Quantity | Absent:
    """Return the time of the forward pass; in a difference, common overhead cancels."""
    row = table.row(given.layer)
    if row is None or row.isolated_forward_s is None:
        return Absent("")
    if not given.without:
        return Absent(f"its time holds {row.overhead}") if row.overhead else row.isolated_forward_s
    plain = table.row(given.without)
    if plain is None or plain.isolated_forward_s is None:
        return Absent("")
    return difference_of_bounds(row.isolated_forward_s, plain.isolated_forward_s)


def _conditions(table: LayerTable) -> tuple[int, str, int]:
    """TF32 does not affect a small kernel, and a CPU's threads do not affect a GPU."""
    precision = str(table.setup.get("precision", _FP32))
    threads = table.setup.get("threads", 0)
    counted = threads if table.place.kind == "cpu" and isinstance(threads, int) else 0
    return table.batch, _FP32 if precision.startswith("tf32") else precision, counted


def _conditions_in_words(found: _Timed) -> str:
    batch, precision, threads = found.conditions
    return f"at batch {batch} in {precision}" + (f" with {threads} thread{'s' * (threads != 1)}" if threads else "")


def _names(group: Mapping[str, _Timed]) -> set[str]:
    return {found.name for found in group.values()}


def _preference(group: Mapping[str, _Timed]) -> tuple[int, int, tuple[int, str, int]]:
    """Prefer the group with most frameworks, then most versions, then the largest batch."""
    return len(_names(group)), len(group), next(iter(group.values())).conditions


def _judged_operation(
    published: float, bound: Bound, group: Mapping[str, _Timed], left_out: Mapping[str, str], lacking: Sequence[str]
) -> _Judged:
    ordered = sorted(group.items(), key=lambda entry: (entry[1].time_s.median, entry[0]))
    (fast, shortest), (slow, longest) = ordered[0], ordered[-1]
    listed = ", ".join(f"{name} {_seconds(found.time_s)}" for name, found in ordered)
    remarks = [f"{name} is left out, since {reason}" for name, reason in sorted(left_out.items())]
    remarks += [f"without {' and '.join(lacking)}, which the paper had"] if lacking else []
    spread = _spread(longest, shortest)
    if spread is None:
        return _Judged(text="; ".join([f"not told apart from nothing in any framework ({listed})", *remarks]))
    judged = of_ratio(spread, published, bound)
    if math.isinf(spread.high) and spread.has_interval:
        compared = f"at least {digits(spread.low)} times as long in {slow} as in {fast}, where it may take no time"
    else:
        compared = f"{in_words(spread)} times as long in {slow} as in {fast}"
    return _Judged(
        text="; ".join([f"takes {compared} ({listed})", judged.why, *remarks]),
        spread=spread,
        judged=judged,
        used=tuple(found for _, found in ordered),
    )


def _spread(longest: _Timed, shortest: _Timed) -> Quantity | None:
    """Return longest over shortest. A time by difference may include 0: then there is no upper end, and the lower end
    replaces the median. Return None if even the longest time includes 0."""
    margin = LEAST_APART[longest.table.place.kind]  # processes of their own
    if shortest.time_s.low > 0 or not shortest.time_s.has_interval:
        return ratio_of_bounds(longest.time_s, shortest.time_s).widened(margin) if shortest.time_s.median > 0 else None
    if longest.time_s.low <= 0 or shortest.time_s.high <= 0:
        return None
    least = longest.time_s.low / shortest.time_s.high / (1 + margin)
    return Quantity.of(median=least, low=least, high=math.inf, n=min(longest.time_s.n, shortest.time_s.n))


def _seconds(time_s: Quantity) -> str:
    """Format a time; a time by difference whose interval includes 0 is not shown as a number."""
    return seconds(time_s.median) if time_s.low > 0 or not time_s.has_interval else f"up to {seconds(time_s.high)}"
