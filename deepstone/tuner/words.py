"""The words of `tune`: ranges of an axis, limits, the objective."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from deepstone.errors import UsageError, nearest, shown
from deepstone.results.tune import TuneLimit, TuneObjective
from deepstone.setups.axes import AXES
from deepstone.setups.tuning import NotTuned

_RANGE: Final = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")
_SIZE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([KMGT]?)(i?B)?", re.IGNORECASE)
_FACTOR: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_POWER: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*W", re.IGNORECASE)
_FACTOR_FORM: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?")
_OBJECTIVES: Final = ("throughput", "energy", "memory")


def expand_ranges(words: Iterable[str]) -> list[str]:
    """`batch=32..256` as `batch=32,64,128,256`: doubled from the first number, the last one always among them."""
    found: list[str] = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or ".." not in text or name not in AXES:
            found.append(word)
            continue
        match, tuning = _RANGE.fullmatch(text.strip()), AXES[name].tuning
        if isinstance(tuning, NotTuned):
            raise UsageError(f"{shown(word)}: tune takes one value of {name}: {tuning.why}")
        numbered = AXES[name].type == "count" or name in ("batch", "processes")
        if not numbered:
            raise UsageError(f"{shown(word)}: {name} takes no range; list its values, as in {name}=A,B")
        if match is not None and int(match[1]) == int(match[2]):
            raise UsageError(f"{shown(word)}: is one value; write it as {name}={int(match[1])}")
        if match is None or not 1 <= int(match[1]) < int(match[2]):
            raise UsageError(f"{shown(word)}: a range is two numbers from 1 on, the smaller first, as in {name}=1..8")
        values, last = [int(match[1])], int(match[2])
        while values[-1] * 2 < last:
            values.append(values[-1] * 2)
        found.append(f"{name}={','.join(map(str, [*values, last]))}")
    return found


def parse_limits(given: Iterable[str]) -> list[TuneLimit]:
    """`memory=40G`, `power=500W`; one text may hold several."""
    limits: dict[str, TuneLimit] = {}
    for word in (part for text in given for part in text.split()):
        name, _, text = word.partition("=")
        if name == "memory" and (match := _SIZE.fullmatch(text)) and float(match[1]) > 0:
            limits[name] = TuneLimit(name=name, most=float(match[1]) * _FACTOR[match[2].upper()])
        elif name == "power" and (match := _POWER.fullmatch(text)) and float(match[1]) > 0:
            limits[name] = TuneLimit(name=name, most=float(match[1]))
        elif name in ("memory", "power"):
            form = "memory=40G" if name == "memory" else "power=500W"
            raise UsageError(f"--limit {shown(word)}: is no limit of {name}; write it as in {form}")
        else:
            known = nearest(name, ("memory", "power"))
            known += ";" if not known.endswith("?") else ""
            raise UsageError(f"--limit {shown(word)}: {known} write it as in memory=40G or power=500W")
    return list(limits.values())


def parse_objective(text: str) -> TuneObjective:
    """`throughput`, `energy`, `memory`. With `:slowdown=1.05`: the least energy (or memory) of the setups that are at
    most so many times slower than the fastest."""
    name, colon, rest = text.strip().lower().partition(":")
    slowdown = None
    if colon:
        key, _, number = rest.partition("=")
        if key != "slowdown" or not _FACTOR_FORM.fullmatch(number) or float(number) < 1:
            form = "slowdown=NUMBER, at least 1, as in energy:slowdown=1.05"
            raise UsageError(f"--objective {shown(text)}: after the colon comes {form}")
        slowdown = float(number)
    if name == "throughput":
        return TuneObjective(name="throughput" if slowdown is None else "energy", slowdown=slowdown)
    if name == "energy":
        return TuneObjective(name="energy", slowdown=slowdown)
    if name == "memory":
        return TuneObjective(name="memory", slowdown=slowdown)
    raise UsageError(f"--objective {shown(text)}: {nearest(name, _OBJECTIVES)}")
