"""Closes the account of communication: what several processes add to a step, part by part, and what is left over.

A part of a step has a time in every traced step. Medians of parts do not add up to the median of the whole, and means
follow every outlier. So each part is the mean over the same steps: those whose whole time is in the middle half. These
means add up, and a step that was disturbed counts in none of them.

    total    = plain step - local step                    local: without communication
    slowdown = computing of the traced step - computing of the step that packs and reduces nothing
    packing  = computing of that one - computing of the local step, and what is packed after computing
    residual = total - (waiting + tail + slowdown + packing + buffers)

All programs took turns in rounds; the bootstrap draws rounds, the same ones for all programs, and then steps. Few
rounds give an interval as wide as Student's t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from deepstone.measure.statistics import Array, quantity_of_draws, widened_for_few
from deepstone.results.quantity import Quantity

_REPLICATES: Final = 1000


class StepParts(Struct, frozen=True, kw_only=True):
    """One traced step. `computing_s` is everything that is none of the other parts; `in_flight_s` runs beside them."""

    total_s: float
    computing_s: float
    waiting_s: float
    tail_s: float
    packing_s: float
    buffers_s: float
    in_flight_s: float


Rounds: TypeAlias = Sequence[Sequence[StepParts]]

_TOTAL, _COMPUTING, _WAITING, _TAIL, _PACKING, _BUFFERS, _IN_FLIGHT = range(7)


def mean_of_ranks(ranks: Sequence[StepParts]) -> StepParts:
    """Of one step."""
    means = np.mean([astuple(rank) for rank in ranks], axis=0)
    return StepParts(**{name: float(mean) for name, mean in zip(StepParts.__struct_fields__, means, strict=True)})


def account_of(
    plain: Sequence[Sequence[float]], traced: Rounds, local: Rounds, packing: Rounds | None
) -> dict[str, Quantity]:
    """Return the parts by name. `plain`: steps without timestamps. `packing`: steps that pack and reduce nothing; None
    where no gradients are packed inside backward."""
    tables = {"plain": np.array([[(step_s,) for step_s in steps] for steps in plain], dtype=np.float64)}
    tables |= {"traced": _table(traced), "local": _table(local)}
    tables |= {} if packing is None else {"packing": _table(packing)}
    found = _parts({name: _middle(table.reshape(-1, table.shape[-1])) for name, table in tables.items()})
    draws: dict[str, list[float]] = {name: [] for name in found}
    random = np.random.default_rng(0)
    rounds = min(len(table) for table in tables.values())
    for _ in range(_REPLICATES):
        chosen = random.integers(0, rounds, size=rounds)
        drawn = {name: _middle(_resampled(table[chosen], random)) for name, table in tables.items()}
        for name, value in _parts(drawn).items():
            draws[name].append(value)
    n = min(table.shape[0] * table.shape[1] for table in tables.values())
    of_rounds = [_parts({name: _middle(table[number]) for name, table in tables.items()}) for number in range(rounds)]
    return {
        name: widened_for_few(
            quantity_of_draws(value, np.array(draws[name]), units=rounds, n=n),
            np.array([each[name] for each in of_rounds]),
        )
        for name, value in found.items()
    }


def _parts(middle: Mapping[str, Array]) -> dict[str, float]:
    traced, local = middle["traced"], middle["local"]
    undisturbed = middle.get("packing", local)  # computing and packing, with no reduction beside it
    found = {
        "total": float(middle["plain"][_TOTAL] - local[_TOTAL]),
        "waiting": float(traced[_WAITING]),
        "tail": float(traced[_TAIL]),
        "slowdown": float(traced[_COMPUTING] - undisturbed[_COMPUTING]),
        "packing": float(undisturbed[_COMPUTING] - local[_COMPUTING] + traced[_PACKING]),
        "buffers": float(traced[_BUFFERS]),
    }
    explained_s = sum(value for name, value in found.items() if name != "total")
    return {
        **found,
        "residual": found["total"] - explained_s,
        "in_flight": float(traced[_IN_FLIGHT]),
        "traced_step": float(traced[_TOTAL]),
    }


def _table(rounds: Rounds) -> Array:
    """Rounds x steps x parts."""
    return np.array([[astuple(step) for step in steps] for steps in rounds], dtype=np.float64)


def _resampled(rounds: Array, random: np.random.Generator) -> Array:
    """Steps x parts: as many steps of each round as it has."""
    picked = random.integers(0, rounds.shape[1], size=rounds.shape[:2])
    return rounds[np.arange(len(rounds))[:, None], picked].reshape(-1, rounds.shape[-1])


def _middle(steps: Array) -> Array:
    """The mean of every part over the half of the steps whose whole time, the first column, is in the middle."""
    order = np.argsort(steps[:, _TOTAL], kind="stable")
    cut = len(order) // 4
    return steps[order[cut : len(order) - cut]].mean(axis=0)
