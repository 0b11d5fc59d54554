"""A study as data: what is measured, how often, in which order and within which time. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from deepstone.measure.effort import DEFAULT_TARGET_SHARE
from deepstone.results.parts import Json
from deepstone.setups.axes import Value
from deepstone.studies.values import Values

Measure: TypeAlias = Literal["run", "layers", "memory", "conv", "peaks"]
Vary: TypeAlias = Literal["grid", "one"]
Order: TypeAlias = Literal["random", "written"]
On: TypeAlias = Literal["any", "cpu", "gpu"]
Rerun: TypeAlias = Literal["never", "failed", "always"]

MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
VARIES: Final[tuple[Vary, ...]] = get_args(Vary)
ORDERS: Final[tuple[Order, ...]] = get_args(Order)
ONS: Final[tuple[On, ...]] = get_args(On)
RERUNS: Final[tuple[Rerun, ...]] = get_args(Rerun)

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")  # protects the file system from names that users give


class Effort(Struct, frozen=True, kw_only=True):
    """The effort of each run. None: the default of the measure."""

    repetitions: int | None = None  # rounds, each a fresh process
    target_share: float = DEFAULT_TARGET_SHARE  # relative half width of the interval
    budget_s: float | None = None
    timeout_s: float = 900.0
    phases: bool = True  # runs also time forward, backward and update, in separate steps


class Rules(Struct, frozen=True, kw_only=True):
    """`time_s` limits the whole study; None: no limit."""

    order: Order = "random"
    seed: int = 1
    time_s: float | None = None
    rerun: Rerun = "never"


class Sweep(Struct, frozen=True, kw_only=True):
    """One [[jobs]] of a study: models, and values of axes. Axes that are not named keep their default."""

    measure: Measure = "run"
    models: tuple[str, ...] = ()
    axes: Mapping[str, Values]
    vary: Vary = "grid"
    exclude: tuple[Mapping[str, Value], ...] = ()
    effort: Effort
    tier: int = 0  # all rounds of a lower tier come first
    method: str = "both"  # of layers
    on: On = "any"  # which device `auto` takes, for these jobs to be planned
    where: str = ""  # the place in the file, for messages


class Study(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str = ""
    sweeps: tuple[Sweep, ...]
    rules: Rules
    figures: tuple[Mapping[str, Json], ...] = ()
