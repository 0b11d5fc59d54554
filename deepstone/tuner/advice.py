"""Advice without search: the setups that rules and the user's own records call faster, for given facts.

    own records of this machine ─▶ rules ┐
    rules that come with Deepstone ──────┴▶ those that hold ─▶ ranked by gain, shrunk where few groups show it

What was measured on this machine with this model comes first. What was measured with other models comes before the
rules that come with Deepstone only where both sides ran in turns. Nothing here measures or imports a framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final, TypeAlias

import msgspec
from msgspec import field

from deepstone.analysis.advice import given_up
from deepstone.results.advice import Advice, Confidence, Device, Facts, Rule, Rules, Seen
from deepstone.results.parts import Value, from_builtins
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import AUTO, AXES, CURRENT, TORCH
from deepstone.setups.request import complete
from deepstone.setups.rules import broken_rule
from deepstone.tuner.evidence import Choices, Setup, gain_over_groups, in_numbers

FILE: Final = "rules.json"
MOST: Final = 5  # setups; nobody tries more
LEAST_GAIN: Final = 1.02  # as for every verdict
_PRIOR_GROUPS: Final = 0.5  # a gain that one group shows counts two thirds, one of three groups six sevenths
_SHIPPED: Final = 2
_OF_THIS_MODEL: Final = 0  # the first source of what is known of a setup
_ANOTHER_MODEL, _DOUBLED_BATCH = 0.7, 0.95  # how much less such a group counts

_Key: TypeAlias = tuple[tuple[str, Value], ...]

_OTHER_STATISTICS: Final = "batch norm over a part of the batch: another training than in one piece"
_LOSSY_COMPRESSION: Final = "gradients that are sent in fewer bits"


@cache
def shipped() -> Rules:
    """The rules that come with Deepstone, made from the records in results/ by scripts/make_advice.py."""
    content = resources.files("deepstone.tuner").joinpath(FILE).read_bytes()
    return msgspec.convert(msgspec.json.decode(content), Rules, dec_hook=from_builtins)


def choices() -> Choices:
    """What frameworks choose for `auto`."""
    return {(each.framework, each.device, each.axis): each.value for each in shipped().chosen}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What advice is for. `kept`: settings that the user gave, which advice does not change. `machine_sha` and `model`:
    those of the user; groups of records that have them count more."""

    facts: Facts
    model: str
    machine_sha: str = ""
    kept: Setup = field(default_factory=dict[str, Value])
    frameworks: tuple[str, ...] = CURRENT
    chosen: Choices = field(default_factory=dict[tuple[str, Device, str], Value])

    @property
    def base(self) -> dict[str, Value]:
        """What is kept, in the words of rules: without what the framework would choose anyway."""
        framework = str(self.kept.get("framework", TORCH))
        settings = ((axis, value) for axis, value in self.kept.items() if axis != "framework")
        found = {axis: value for axis, value in settings if self.value_in(framework, axis) != value}
        return found if framework == TORCH else {**found, "framework": framework}

    def value_in(self, framework: str, axis: str) -> Value | None:
        """What a framework chooses where nothing is asked for."""
        return self.chosen.get((framework, self.facts.device, axis), AXES[axis].default)

    def is_kept_in(self, setup: Setup) -> bool:
        """Whether a setup has all that the user gave."""
        framework = str(setup.get("framework", TORCH))
        return all(
            setup.get(axis, self.value_in(framework, axis)) == value
            for axis, value in self.kept.items()
            if axis != "framework"
        )


def ranking(asked: Asked, own: Sequence[Rule], others: Sequence[Rule]) -> list[tuple[Setup, float]]:
    """Every setup that rules know, with the expected logarithm of its gain, the best first."""
    return [(each.setup, each.score) for each in _ranked(asked, own, others)]


def advise(asked: Asked, own: Sequence[Rule] = (), others: Sequence[Rule] | None = None) -> list[Advice]:
    """The best setups, the best first; at least one that gives up nothing, if there is any. Empty where nothing is
    known to be faster. `own`: rules from the user's records; `others`: the ones that come with Deepstone."""
    ranked = _ranked(asked, own, shipped().rules if others is None else others)
    found = [_advice(asked, each) for each in ranked if each.is_worth_a_try]
    best = found[:MOST]
    free = next((each for each in found if not each.gives_up), None)
    if free is not None and free not in best:
        best[-1] = free
    return best


def starts(facts: Facts, *, model: str = "", rules: Sequence[Rule] | None = None) -> list[Setup]:
    """Where a search may begin: the best setup of each framework that rules know, as axes and values. `rules`: others
    than those that come with Deepstone."""
    asked = Asked(facts=facts, model=model)
    found: dict[Value, Setup] = {}
    for each in _ranked(asked, (), shipped().rules if rules is None else rules):
        if each.score > 0:
            found.setdefault(each.setup.get("framework", TORCH), each.setup)
    return list(found.values())


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A setup with what was seen of it. `score`: the expected logarithm of its gain over what was asked for.
    `is_linked`: whether that is known, and not only its gain over another setup. `source`: 0 own records of this model,
    1 own records in turns, 2 the rules that come with Deepstone, 3 own records that were measured apart."""

    setup: Setup
    over: Setup
    seen: tuple[Seen, ...]
    score: float
    is_linked: bool
    source: int = 0

    @property
    def is_worth_a_try(self) -> bool:
        """Whether a group shows that it is faster, by the whole of its interval, and none that it is slower."""
        gains = [each.gain for each in self.seen]
        shown = any(gain.low > 1 for gain in gains) and not any(gain.high < 1 for gain in gains)
        return shown and self.is_linked and self.score > math.log(LEAST_GAIN)


def _ranked(asked: Asked, own: Sequence[Rule], others: Sequence[Rule]) -> list[_Candidate]:
    """Every setup once, with its strongest evidence: own records of this model, then own records in turns, then shipped
    rules, then own records that were measured apart."""
    base = asked.base
    candidates: dict[_Key, _Candidate] = {}
    of_this_model = _of_this_model(asked, own)
    in_turns, apart = (_seen_only(own, lambda seen, turns=turns: (seen.rounds > 0) is turns) for turns in (True, False))
    for number, source in enumerate((of_this_model, in_turns, others, apart)):
        over_base = {_key(rule.setup): rule for rule in source if dict(rule.over) == base}
        found = [each for rule in source for each in _candidates(asked, rule, base, over_base)]
        for each in sorted(found, key=lambda each: (each.over != base, -each.score)):
            candidates.setdefault(_key(each.setup), msgspec.structs.replace(each, source=number))
    ranked = sorted(candidates.values(), key=lambda each: (each.source, -each.score, len(each.setup)))
    return _fastest_first(ranked, _shown_slower(asked, of_this_model))


def _shown_slower(asked: Asked, rules: Iterable[Rule]) -> set[tuple[_Key, _Key]]:
    """Pairs of setups of which the first is slower than the second, by the whole of the interval."""
    found: set[tuple[_Key, _Key]] = set()
    for rule in rules:
        setup, over = (in_numbers(each, asked.facts.cores) for each in (rule.setup, rule.over))
        if setup is None or over is None:
            continue
        if rule.gain.low > 1:
            found.add((_key(over), _key(setup)))
        elif rule.gain.high < 1:
            found.add((_key(setup), _key(over)))
    return found


def _fastest_first(ranked: Sequence[_Candidate], slower: Collection[tuple[_Key, _Key]]) -> list[_Candidate]:
    """Before a setup comes every listed one that this model's own runs show to be faster, wherever that was ranked."""
    left, found = list(ranked), list[_Candidate]()
    while left:
        best, passed = left[0], set[_Key]()
        while True:
            passed.add(_key(best.setup))
            faster = (
                each
                for each in left
                if each.is_worth_a_try
                and _key(each.setup) not in passed
                and (_key(best.setup), _key(each.setup)) in slower
            )
            better = next(faster, None)
            if better is None:
                break
            best = better
        found.append(best)
        left.remove(best)
    return found


def _of_this_model(asked: Asked, own: Iterable[Rule]) -> list[Rule]:
    """The user's own rules, from their records of this model on this machine alone."""
    place = (asked.model, asked.machine_sha, asked.facts.batch)
    found = _seen_only(own, lambda seen: (seen.model, seen.machine_sha, seen.batch) == place)
    return [*found, *(_turned(rule) for rule in found if rule.over and rule.gain.high < 1)]


def _seen_only(rules: Iterable[Rule], counts: Callable[[Seen], bool]) -> list[Rule]:
    """Rules from those groups alone."""
    found: list[Rule] = []
    for rule in rules:
        seen = [each for each in rule.seen if counts(each)]
        if seen:
            gain = gain_over_groups([each.gain for each in seen])
            found.append(msgspec.structs.replace(rule, seen=seen, gain=gain))
    return found


def _turned(rule: Rule) -> Rule:
    """What is slower than another setup says that the other one is faster."""
    seen = [msgspec.structs.replace(each, gain=each.gain.inverse(1.0)) for each in rule.seen]
    return msgspec.structs.replace(
        rule, over=rule.setup, setup=rule.over, seen=seen, gain=gain_over_groups([each.gain for each in seen])
    )


def _candidates(asked: Asked, rule: Rule, base: Setup, over_base: Mapping[_Key, Rule]) -> Iterable[_Candidate]:
    """The rule's setup, if it holds and can run here. A rule over another setup than the asked one is ranked by what is
    known of that one."""
    if not rule.when.hold(asked.facts):
        return
    over = in_numbers(rule.over, asked.facts.cores)
    score, is_linked = _score(asked, rule), True
    if over != base:
        if base:
            return
        between = over_base.get(_key(rule.over))
        score += _score(asked, between) if between is not None else 0.0
        is_linked = between is not None
    setup = in_numbers(rule.setup, asked.facts.cores)
    if setup is None or over is None or not asked.is_kept_in(setup):
        return
    if setup.get("framework", TORCH) not in asked.frameworks or _broken(asked, setup):
        return
    yield _Candidate(setup=setup, over=over, seen=tuple(rule.seen), score=score, is_linked=is_linked)


def _broken(asked: Asked, setup: Setup) -> str | None:
    facts = asked.facts
    device = "gpu:0" if facts.device == "gpu" else "cpu"
    request = {"device": device, "batch": facts.batch, "phase": facts.phase, "framework": TORCH, **setup}
    return broken_rule(complete(request))


def _score(asked: Asked, rule: Rule) -> float:
    """The mean of the logarithms, like groups first, shrunk towards no gain."""
    weights = [_weight(asked, each) for each in rule.seen]
    logs = [math.log(each.gain.median) for each in rule.seen]
    total = sum(weight * log for weight, log in zip(weights, logs, strict=True))
    return total / (sum(weights) + _PRIOR_GROUPS)


def _weight(asked: Asked, seen: Seen) -> float:
    weight = 1.0 if seen.model == asked.model else _ANOTHER_MODEL
    return weight * _DOUBLED_BATCH ** abs(math.log2(seen.batch / asked.facts.batch))


def _advice(asked: Asked, candidate: _Candidate) -> Advice:
    seen = candidate.seen
    gain = gain_over_groups([each.gain for each in seen])
    setup = {axis: candidate.setup[axis] for axis in AXES if axis in candidate.setup}
    other_framework = setup.get("framework", TORCH) != asked.base.get("framework", TORCH)
    return Advice(
        setup=setup,
        over=dict(candidate.over),
        gain=gain,
        machines=len({each.machine_sha for each in seen}),
        models=sorted({f"{each.model}, batch {each.batch}, {each.machine}" for each in seen}),
        confidence=_confidence(asked, candidate, gain),
        gives_up=_gives_up(asked, setup),
        checked=all(each.checked for each in seen) or not other_framework,
        records=list(dict.fromkeys(run for each in seen for run in each.records)),
        words=" ".join(f"{axis}={value}" for axis, value in setup.items()),
    )


def _gives_up(asked: Asked, setup: Setup) -> list[str]:
    """What a training loses with this setup; empty where only the order of operations changes."""
    found: list[str] = []
    lost = given_up(*(_precision(asked, each) for each in (asked.base, setup)))
    if lost:
        found.append(lost)
    batch_norm = asked.facts.batch_norm
    if batch_norm is not False and any(setup.get(axis, 1) not in (AUTO, 1) for axis in ("processes", "accumulate")):
        found.append(_OTHER_STATISTICS)
    if setup.get("compression", "none") != "none":
        found.append(_LOSSY_COMPRESSION)
    return found


def _precision(asked: Asked, setup: Setup) -> str:
    framework = str(setup.get("framework", TORCH))
    return str(setup.get("precision", asked.value_in(framework, "precision")))


def _confidence(asked: Asked, candidate: _Candidate, gain: Quantity) -> Confidence:
    """Machines of one type have the same name, so a shipped rule may come from another machine like this."""
    seen = candidate.seen
    is_this = all(each.machine_sha == asked.machine_sha and each.model == asked.model for each in seen)
    if candidate.source == _OF_THIS_MODEL or (is_this and candidate.source != _SHIPPED):
        return "measured here"
    if is_this:
        return "measured on a machine of this type"
    machines = {each.machine_sha for each in seen}
    always = gain.low > 1
    if always and len(machines) > 1 and len(seen) > 2:
        return "high"
    return "medium" if always and (len(machines) > 1 or len(seen) > 1) else "low"


def _key(setup: Setup) -> _Key:
    return tuple(sorted(setup.items(), key=str))
