"""A model of log speed over the space, and what it does not know.

    log speed = framework + axis + axis within framework + pairs of axes within framework + point + noise + drift

Each term is a random effect: values that were seen tell about points that were not. How large each kind of effect is,
how much each axis matters and how much launches differ, is learned from the looks, with the expected rank of an axis as
a weak prior. Written as covariances between points, all terms follow from one number for each axis: how alike two
points are in it. So a fit costs one small matrix, whatever the size of the space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from deepstone.setups.axes import Value
from deepstone.tuner.space import Point, SearchAxis

Array: TypeAlias = NDArray[np.floating[Any]]

# Priors: standard deviations of effects on log speed, and how far (in log variance) they may be wrong.
_AXIS_SD: Final = 0.30  # of the axis with rank 1; rank r has 1/sqrt(r) of it
_FRAMEWORK_SD: Final = 0.35
_POINT_SD: Final = 0.02
_WITHIN: Final = 0.3  # variance of an axis within a framework, relative to that of the axis
_PAIR: Final = 0.25  # variance of a pair of axes, relative to the geometric mean of both
_DRIFT: Final = 0.3  # variance of slow changes of the machine, relative to the noise
_DRIFT_LOOKS: Final = 6.0  # after so many looks the machine may have changed
_MEAN_VARIANCE: Final = 4.0
_DOUBT: Final = 1.0
# Expected loss of log speed for each axis that differs from the default. Defaults are chosen well: most single changes
# make training slower, and some much slower. With less, a search begins far away, where the model knows the least.
CHANGE_COST: Final = 0.2
_NEAR: Final = 0.5  # likeness of neighbouring values of an ordered axis
_STEPS: Final = (1.6, 0.8, 0.4)  # of the search for the likeliest variances, in log variance


class Landscape(Protocol):
    """What the model and the search need to know of a space."""

    @property
    def axes(self) -> Sequence[SearchAxis]: ...
    @property
    def default(self) -> Point: ...
    @property
    def points(self) -> Sequence[Point]: ...
    def framework(self, point: Point) -> str: ...
    def resolved(self, point: Point) -> tuple[Value, ...]: ...


class Likeness(Struct, frozen=True, kw_only=True):
    """How alike the points of two lists are: in each axis, in their framework, and whether they are the same."""

    by_axis: Array  # axis x row x column
    framework: Array
    equal: Array


class Encoder:
    """Turns points into numbers, once for each."""

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape
        self._ordered = np.array([axis.ordered for axis in landscape.axes], dtype=bool)
        self._levels: list[dict[Value, float]] = [dict[Value, float]() for _ in landscape.axes]
        for levels, axis in zip(self._levels, landscape.axes, strict=True):
            # `auto` has a level of its own, far from the others, unless it is known what it means.
            numbers = sorted(value for value in axis.values if isinstance(value, int))
            levels.update({value: math.log2(max(value, 1)) for value in numbers} if axis.ordered else {})
        self._known: dict[Point, Array] = {}
        self._frameworks: dict[str, float] = {}

    def rows(self, points: Sequence[Point]) -> Array:
        """A row for each point: its framework, then a level for each axis."""
        return np.array([self._row(point) for point in points]).reshape(len(points), -1)

    def _row(self, point: Point) -> Array:
        if point not in self._known:
            framework = self._landscape.framework(point)
            row = [self._frameworks.setdefault(framework, float(len(self._frameworks)))]
            for levels, value in zip(self._levels, self._landscape.resolved(point), strict=True):
                if value not in levels:
                    levels[value] = (
                        math.log2(value) if isinstance(value, int) and value > 0 else 100.0 + 10 * len(levels)
                    )
                row.append(levels[value])
            self._known[point] = np.array(row)
        return self._known[point]

    def likeness(self, a: Array, b: Array) -> Likeness:
        apart = np.abs(a[:, None, 1:] - b[None, :, 1:])
        alike = np.where(self._ordered, _NEAR**apart, apart == 0.0)
        return Likeness(
            by_axis=np.moveaxis(alike, 2, 0).astype(np.float64),
            framework=(a[:, None, 0] == b[None, :, 0]).astype(np.float64),
            equal=(np.all(apart == 0.0, axis=2) & (a[:, None, 0] == b[None, :, 0])).astype(np.float64),
        )


class Prediction(Struct, frozen=True, kw_only=True):
    """Of some points: the expected log speed and its standard deviation, noise not included."""

    mean: Array
    sd: Array


class Model:
    """Fits looks, then predicts. `noise_sd` is the expected spread between launches of one setup."""

    def __init__(self, landscape: Landscape, *, noise_sd: float) -> None:
        self.encoder = Encoder(landscape)
        axis_sd = np.array([_AXIS_SD / math.sqrt(axis.rank) for axis in landscape.axes])
        others = [_FRAMEWORK_SD**2, _WITHIN, _PAIR, _POINT_SD**2, noise_sd**2, _DRIFT]
        self._prior = np.log(np.concatenate([axis_sd**2, others]))
        self._doubt = np.full(len(self._prior), _DOUBT)
        self._doubt[-2] = 1.5  # the noise of a machine is hardly known beforehand
        self._theta = self._prior.copy()
        self._axes = len(axis_sd)
        self._rows = np.empty((0, 1 + self._axes))
        self._fitted: tuple[Array, Array, float] | None = None
        self._default = landscape.default
        self.change_cost = CHANGE_COST  # nothing where the default does not run: then it was not chosen well

    @property
    def noise_sd(self) -> float:
        return math.exp(self._theta[-2] / 2)

    def fit(self, points: Sequence[Point], values: Sequence[float], order: Sequence[float]) -> None:
        """Learn the variances and condition on the looks. `order`: when each was, counted in looks."""
        self._rows = self.encoder.rows(points)
        like = self.encoder.likeness(self._rows, self._rows)
        when = np.asarray(order, dtype=np.float64)
        near_in_time = np.exp(-np.abs(when[:, None] - when[None, :]) / _DRIFT_LOOKS)
        expected = self._expected(points)
        middle = float(np.median(np.asarray(values) - expected))
        centered = np.asarray(values) - expected - middle
        best = self._badness(self._theta, like, near_in_time, centered)
        for step in _STEPS:
            for place in range(len(self._theta)):
                for sign in (1.0, -1.0):
                    tried = self._theta.copy()
                    tried[place] += sign * step
                    badness = self._badness(tried, like, near_in_time, centered)
                    if badness < best - 1e-9:
                        best, self._theta = badness, tried
                        break
        lower = np.linalg.cholesky(self._observed(self._theta, like, near_in_time))
        weights = np.linalg.solve(lower.T, np.linalg.solve(lower, centered))
        self._fitted = lower, weights, middle

    def predict(self, points: Sequence[Point]) -> Prediction:
        assert self._fitted is not None, "fit comes first"
        lower, weights, middle = self._fitted
        rows = self.encoder.rows(points)
        cross = self._covariance(self._theta, self.encoder.likeness(rows, self._rows))
        spread = np.linalg.solve(lower, cross.T)
        variance = self._self_variance() - np.sum(spread**2, axis=0)
        mean = middle + self._expected(points) + cross @ weights
        return Prediction(mean=mean, sd=np.sqrt(np.maximum(variance, 1e-12)))

    def contrast(self, a: Point, b: Point) -> tuple[float, float]:
        """Log speed of `a` over that of `b`: its mean and standard deviation, with what both share taken out."""
        assert self._fitted is not None, "fit comes first"
        lower, weights, _ = self._fitted
        rows = self.encoder.rows([a, b])
        cross = self._covariance(self._theta, self.encoder.likeness(rows, self._rows))
        spread = np.linalg.solve(lower, cross.T)
        joint = self._covariance(self._theta, self.encoder.likeness(rows, rows)) - spread.T @ spread
        means = self._expected([a, b]) + cross @ weights
        variance = joint[0, 0] + joint[1, 1] - 2 * joint[0, 1]
        return float(means[0] - means[1]), math.sqrt(max(float(variance), 1e-12))

    def _expected(self, points: Sequence[Point]) -> Array:
        """Before any look: every change costs a little."""
        changes = [sum(a != b for a, b in zip(point, self._default, strict=True)) for point in points]
        return -self.change_cost * np.array(changes, dtype=np.float64)

    def _badness(self, theta: Array, like: Likeness, near_in_time: Array, values: Array) -> float:
        """The negative log of likelihood and prior."""
        try:
            lower = np.linalg.cholesky(self._observed(theta, like, near_in_time))
        except np.linalg.LinAlgError:
            return math.inf
        whitened = np.linalg.solve(lower, values)
        fit = 0.5 * float(whitened @ whitened) + float(np.sum(np.log(np.diag(lower))))
        return fit + 0.5 * float(np.sum(((theta - self._prior) / self._doubt) ** 2))

    def _observed(self, theta: Array, like: Likeness, near_in_time: Array) -> Array:
        noise = math.exp(theta[-2])
        launches = noise * np.eye(len(near_in_time)) + noise * math.exp(theta[-1]) * near_in_time
        return self._covariance(theta, like) + launches

    def _covariance(self, theta: Array, like: Likeness) -> Array:
        axis, (framework, within, pair, point) = np.exp(theta[: self._axes]), np.exp(theta[self._axes : -2])
        by_axis = np.tensordot(axis, like.by_axis, axes=1)
        root = np.sqrt(axis)
        sums = np.tensordot(root, like.by_axis, axes=1)
        pairs = (sums**2 - np.tensordot(axis, like.by_axis**2, axes=1)) / 2
        return (
            _MEAN_VARIANCE
            + by_axis
            + like.framework * (framework + within * by_axis + pair * pairs)
            + point * like.equal
        )

    def _self_variance(self) -> float:
        one = np.ones((1, 1))
        same = Likeness(by_axis=np.ones((self._axes, 1, 1)), framework=one, equal=one)
        return float(self._covariance(self._theta, same)[0, 0])
