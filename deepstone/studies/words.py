"""AXIS=VALUE words after a study's name: they take the place of the study's own values for that axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepstone.errors import UsageError, nearest, shown
from deepstone.models.zoo import ZOO
from deepstone.records.identity import canonical_sha256
from deepstone.runner.lab_axes import no_use_of
from deepstone.setups.axes import AXES
from deepstone.studies.read_table import OF_PEAKS
from deepstone.studies.study import Study, Sweep
from deepstone.studies.values import Listed, parse_value

_NAME_DIGITS = 8


def with_words(study: Study, words: Sequence[str]) -> Study:
    """The study with these values in all its sweeps, under a name of its own; UsageError for a word that is wrong."""
    if not words:
        return study
    models: tuple[str, ...] = ()
    axes: dict[str, Listed] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not AXIS=VALUE, as in batch=32; `deepstone axes` lists the axes")
        if name in axes or (name == "model" and models):
            raise UsageError(f"{name}: given twice; write {name}=A,B for several values")
        parts = [part.strip() for part in text.split(",")]
        if len(set(parts)) != len(parts):
            raise UsageError(f"{shown(word)}: a value is listed twice")
        if name == "model":
            models = tuple(_model(part) for part in parts)
        elif name in AXES:
            axes[name] = Listed(values=tuple(parse_value(name, part) for part in parts))
        else:
            raise UsageError(f"{shown(name)}: no such axis; {nearest(name, (*AXES, 'model'))}")
    sweeps = tuple(_with(sweep, models, axes) for sweep in study.sweeps)
    name = f"{study.name}-{canonical_sha256(sorted(words))[:_NAME_DIGITS]}"
    return replace(study, name=name, sweeps=sweeps)


def _model(reference: str) -> str:
    """Files are looked at when they are loaded; a name is either in the zoo or wrong."""
    if reference not in ZOO and not any(character in reference for character in "/:."):
        raise UsageError(f"no model {reference!r} in the zoo; {nearest(reference, ZOO)}")
    return reference


def _with(sweep: Sweep, models: tuple[str, ...], axes: dict[str, Listed]) -> Sweep:
    if sweep.measure == "peaks":  # of the machine: what a network is run with has no part in them
        return replace(sweep, axes={**sweep.axes, **{axis: axes[axis] for axis in OF_PEAKS if axis in axes}})
    if sweep.measure == "conv":
        for axis, listed in axes.items():
            reason = next(filter(None, (no_use_of(axis, value) for value in listed.values)), None)
            if reason:
                raise UsageError(reason)
    return replace(sweep, models=models or sweep.models, axes={**sweep.axes, **axes})
