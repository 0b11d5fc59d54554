"""How a run was set up, in words: short in a table, whole where someone asks."""

from __future__ import annotations

from typing import Any, Final

from deepstone.records.schema import Record
from deepstone.report.wording import harmless
from deepstone.setups.axes import AXES

_OWN_COLUMNS: Final = frozenset({"framework", "device", "batch", "phase"})
_TOLD: Final = ("precision", "layout", "engine", "compile", "threads")
_READ_BACK: Final = {"observed": "", "set": "*"}
_SAYS_NOTHING: Final = frozenset({"not used", "off", "auto", ""})


def workload_and_setup(record: Record) -> str:
    """As in "resnet50 · batch 256 · train · torch 2.11.0 on gpu:0 · tf32, nhwc, cudnn"."""
    workload = record["workload"]
    details = [_in_words(axis, effective(record, axis)) for axis in _TOLD]
    parts = [
        harmless(workload["model"]),
        f"batch {workload['batch']}",
        workload["phase"],
        f"{effective(record, 'framework').replace('@', ' ')} on {effective(record, 'device')}",
        ", ".join(words for words in details if words),
    ]
    return " · ".join(part for part in parts if part)


def chosen(record: Record) -> str:
    """What was asked for beyond the defaults, as one would type it; what has a column of its own is left out."""
    asked = record["setup"]["requested"]
    ordered = [axis for axis in AXES if axis in asked] + [axis for axis in asked if axis not in AXES]
    words = [
        f"{axis}={asked[axis]}"
        for axis in ordered
        if axis not in _OWN_COLUMNS and (axis not in AXES or asked[axis] != AXES[axis].default)
    ]
    return harmless(" ".join(words))


def in_effect(record: Record) -> str:
    """Every axis as it was in effect; a star marks what was set and could not be read back."""
    effects: dict[str, Any] = dict(record["setup"]["effective"])
    words = [f"{axis}={effect['value']}{_READ_BACK[effect['source']]}" for axis, effect in effects.items()]
    return harmless(" ".join(words), 1500)


def effective(record: Record, axis: str) -> str:
    """What an axis was in effect, else what was asked for, else nothing."""
    setup = record["setup"]
    if axis in setup["effective"]:
        return harmless(str(setup["effective"][axis]["value"]))
    return harmless(str(setup["requested"].get(axis, "")))


def _in_words(axis: str, value: str) -> str:
    if value in _SAYS_NOTHING:
        return ""
    if axis == "threads":
        return "1 thread" if value == "1" else f"{value} threads"
    return f"compile={value}" if axis == "compile" else value
