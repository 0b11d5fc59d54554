"""Where a search begins: the default of every framework, what is usually best, what the user named, and the best in
the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

from deepstone.absent import Absent
from deepstone.models.load import LoadedModel
from deepstone.results.record import Record
from deepstone.setups.axes import TORCH, Value
from deepstone.setups.tuning import DeviceKind, Facts
from deepstone.store.rows import Filters
from deepstone.store.store import Store
from deepstone.tuner.space import Point, SearchAxis, Space

_SHORT_LIST: Final = 4  # values; of a longer list the search chooses
_NAMED: Final = 8  # such values at most, of the most important axes: the search needs time for itself
# Where no rule of advice speaks: what experience says, of each framework the first of these that may run. All of it is
# a place to begin, and no reason to believe anything.
_ON_GPU: Final[Mapping[str, Value]] = {"precision": "bf16-mixed", "space_to_depth": "on"}
_COMPILED: Final[Mapping[str, Value]] = {"layout": "nhwc", "compile": "default"}
_USUALLY_BEST: Final[Mapping[tuple[str, DeviceKind], tuple[Mapping[str, Value], ...]]] = {
    ("torch", "gpu"): ({**_ON_GPU, **_COMPILED}, {"precision": "bf16-mixed", **_COMPILED}),
    ("jax", "gpu"): (_ON_GPU, {"precision": "bf16-mixed"}),
    ("tensorflow", "gpu"): ({"precision": "bf16-mixed", "compile": "default"},),
}


class Startable(Protocol):
    """What starts need to know of a space; a recorded table can tell it too."""

    @property
    def axes(self) -> tuple[SearchAxis, ...]: ...
    @property
    def facts(self) -> Facts: ...
    @property
    def default(self) -> Point: ...
    def framework(self, point: Point) -> str: ...
    def with_value(self, point: Point, name: str, value: Value) -> Point: ...
    def why_not(self, point: Point) -> str | None: ...


def starts_of(
    space: Startable, stored: Iterable[Point] = (), advised: Iterable[Mapping[str, Value]] = ()
) -> list[Point]:
    """The default first, each point once, without those that cannot run. `advised`: the best setup of a framework by
    the rules of advice. On a GPU, where a look takes long, a framework's own default is left to the search if a better
    start is known, and the framework that the rules have first comes first, because a small budget may not suffice for
    another; where the batch is free, the better starts are also at the largest batch. Then each value of a
    short list that the user gave, alone: what he names is looked at."""
    of_frameworks = [space.default]
    for axis in space.axes:
        if axis.name == "framework":
            of_frameworks += [space.with_value(space.default, "framework", value) for value in axis.values[1:]]
    rules = {str(setup.get("framework", TORCH)): setup for setup in advised}
    is_quick = space.facts.device == "cpu"
    ranks = {} if is_quick else {framework: rank for rank, framework in enumerate(rules)}
    in_order = sorted(of_frameworks, key=lambda point: ranks.get(_framework(space, point), len(ranks)))
    better = {point: _better(space, point, rules) for point in in_order}
    found = [space.default]
    for point, best in better.items():
        found += [best] if best is not None and not is_quick else [point] if best is None else [point, best]
    batches = [value for axis in space.axes if axis.name == "batch" for value in axis.values]
    if batches:
        found += [
            space.with_value(best, "batch", max(batches, key=int)) for best in better.values() if best is not None
        ]
    named = islice(_named(space, of_frameworks), _NAMED)
    return [
        point
        for point in dict.fromkeys([*found, *stored, *named])
        if point == space.default or not space.why_not(point)
    ]


def _named(space: Startable, of_frameworks: Sequence[Point]) -> Iterator[Point]:
    """Each value that the user listed, as the one change of the default of the first framework that takes it."""
    for axis in space.axes:
        if not axis.named or axis.name == "framework" or len(axis.values) > _SHORT_LIST:
            continue
        for value in axis.values[1:]:
            changed = ((point, space.with_value(point, axis.name, value)) for point in of_frameworks)
            taken = (near for point, near in changed if near != point and space.why_not(near) is None)
            yield from islice(taken, 1)


def _framework(space: Startable, point: Point) -> str:
    return space.framework(point).partition("@")[0]


def _better(space: Startable, point: Point, rules: Mapping[str, Mapping[str, Value]]) -> Point | None:
    """A start in the framework of this point that is likely better than its default."""
    framework = _framework(space, point)
    usual = _USUALLY_BEST.get((framework, space.facts.device), ())
    for changes in [*([rules[framework]] if framework in rules else []), *usual]:
        wanted = {name: value for name, value in changes.items() if name != "framework"}
        changed = _with(space, point, wanted)
        if changed != point and space.why_not(changed) is None:
            return changed
    return None


def _with(space: Startable, point: Point, changes: Mapping[str, Value]) -> Point:
    """With those changes that the space has."""
    values = {axis.name: axis.values for axis in space.axes}
    for name, value in changes.items():
        if value in values.get(name, ()):
            point = space.with_value(point, name, value)
    return point


def best_in_store(store: Store, space: Space, model: LoadedModel, machine_sha: str) -> list[Point]:
    """The fastest setup that this store has of the same network on the same machine, if it is in the space."""
    rows = [row for row in store.list(Filters(model=model.name, outcome="ok")).rows if row.samples_per_s is not None]
    for row in sorted(rows, key=lambda row: -(row.samples_per_s or 0.0)):
        point = space.point_of(_known(space, row.asked))
        if point is None or point == space.default:
            continue
        for record in store.records([row]):
            if _is_same(record, model, machine_sha):
                return [point]
    return []


def _known(space: Space, asked: Mapping[str, Value]) -> dict[str, Value]:
    """A stored request in the words of this space: `framework=torch` is `auto` where that takes torch."""
    known = dict(asked)
    if "framework" not in space.base and known.get("framework") == next(iter(space.facts.frameworks), None):
        known.pop("framework")
    if "device" not in space.base and str(known.get("device", "")).partition(":")[0] == space.facts.device:
        known.pop("device")
    return known


def _is_same(record: Record, model: LoadedModel, machine_sha: str) -> bool:
    identity = record.identity
    return (
        identity.graph_sha == model.graph.sha
        and identity.machine_sha == machine_sha
        and not isinstance(record.summary, Absent)
    )
