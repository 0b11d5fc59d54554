"""Speed-up and efficiency of several processes over one, from rounds in which all of them were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from deepstone.measure.statistics import Quantity, median_of_rounds, ratio_of_rounds


class ScalingPoint(Struct, frozen=True, kw_only=True):
    """`speedup`: samples in a second over those of the base, in the same round. `efficiency`: of each process."""

    processes: int
    samples_per_s: Quantity
    speedup: Quantity
    efficiency: Quantity

    @property
    def is_beyond_ideal(self) -> bool:
        """Whether more processes surely give more than as many times the base: then the base is too slow."""
        return self.processes > 1 and self.efficiency.has_interval and self.efficiency.low > 1


def scaling_points(rates: Mapping[int, Sequence[float]], base: Sequence[float]) -> list[ScalingPoint]:
    """`rates`: by number of processes, samples in a second in each round; `base`: those of the one process."""
    return [_point(processes, found, base) for processes, found in sorted(rates.items())]


def _point(processes: int, rates: Sequence[float], base: Sequence[float]) -> ScalingPoint:
    pairs = list(zip(rates, base, strict=True))
    if len(pairs) < 2:
        why = "one round has no interval; give more with --rounds"
        rate, speedup = (
            Quantity.without_interval(rates[0], n=1, why=why),
            Quantity.without_interval(rates[0] / base[0], n=1, why=why),
        )
    else:
        rate, speedup = median_of_rounds(rates), _speedup(pairs)
    return ScalingPoint(
        processes=processes, samples_per_s=rate, speedup=speedup, efficiency=_divided(speedup, processes)
    )


def _speedup(pairs: Sequence[tuple[float, float]]) -> Quantity:
    if all(a == b for a, b in pairs):  # the base itself
        return Quantity.of(median=1.0, low=1.0, high=1.0, n=len(pairs))
    return ratio_of_rounds(pairs)


def _divided(quantity: Quantity, by: int) -> Quantity:
    if not quantity.has_interval:
        return Quantity.without_interval(quantity.median / by, n=quantity.n, why=quantity.no_interval)
    return Quantity.of(median=quantity.median / by, low=quantity.low / by, high=quantity.high / by, n=quantity.n)
