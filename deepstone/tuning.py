"""`deepstone.tune` for notebooks and scripts: the search of the command line, its answer as an object."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, get_args

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.errors import MissingError, UsageError, nearest
from deepstone.report.files import draw
from deepstone.results.findings import Finding
from deepstone.results.identity import task_id
from deepstone.results.record import SCHEMA
from deepstone.results.tune import Look, SameLevel, Tuned
from deepstone.runner.findings import storable_finding
from deepstone.setups.axes import Value
from deepstone.store.layout import default_folder
from deepstone.store.store import Store
from deepstone.studies.durations import parse_duration
from deepstone.tuner.emit import check_emitted, chosen_setup, emit
from deepstone.tuner.log import check_meter, open_log
from deepstone.tuner.tune import Tuner
from deepstone.tuner.wanted import BUDGET_S, LEAST_BUDGET_S, Wanted
from deepstone.tuner.words import parse_limits, parse_objective
from deepstone.tuner.workload import Workload

if TYPE_CHECKING:
    from deepstone.results.parts import Json
    from deepstone.results.quantity import Quantity
    from deepstone.runner.job import Job

Values: TypeAlias = Value | Iterable[Value]  # of one axis: fixed, or several to be searched over
OnLook: TypeAlias = Callable[[Look], None]
_LEVELS: Final[tuple[SameLevel, ...]] = get_args(SameLevel)


class Tuning(Struct, frozen=True, kw_only=True):
    """What a search found. `found` has everything, as docs/tune.md describes it."""

    found: Tuned
    finding: Finding
    _workload: Workload

    def __repr__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.setup.items()) or "the default"
        return f"<Tuning {self.found.answer}: {words}>"

    @property
    def id(self) -> str | None:
        """Its id in the store."""
        return self.finding.id

    @property
    def setup(self) -> Mapping[str, Value]:
        """The best setup: the axes that are not at their default."""
        return self.found.best.setup

    @property
    def is_better(self) -> bool:
        """Whether it is shown to be better than the default."""
        return self.found.is_better

    @property
    def ratio(self) -> Quantity | Absent:
        """What is sought, over that of the default; of memory, the default's over its own, so that more is better.
        Absent where nothing is shown to be better."""
        return self.found.ratio

    def page(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, or with the ending .svg or .png the first figure. MissingError without the figures extra."""
        target = Path(path).expanduser()
        draw(self.finding, target)
        return target

    def code(self, framework: str | None = None) -> str:
        """A training script of the best setup, or of the best one in this framework."""
        space = self._workload.space

        def job_of(setup: Mapping[str, Value]) -> Job:
            return self._workload.job(space.point_of(setup) or space.default)

        wanted = check_emitted(framework or job_of(self.setup).environment.framework)
        samples = job_of({}).workload.samples
        chosen = chosen_setup(self.found, wanted, lambda setup: job_of(setup).environment.framework, samples)
        return emit(job_of(chosen.setup), chosen.found)

    def looks(self) -> Any:
        """A pandas.DataFrame with a row per launch: what it was for, its setup, its rate or why it has none."""
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise MissingError("pandas is missing; from the clone: pip install -e '.[notebook]'") from error
        return pandas.DataFrame([_row(look) for look in self.found.looks])

    def to_json(self) -> dict[str, Json]:
        """As `deepstone tune --json` prints it."""
        doubts: list[Json] = [*self.found.doubts]
        return {**self.finding.to_json(), "doubts": doubts}  # JSON leaves out an empty list


def tune(
    model: str,
    *,
    budget: str | float | None = None,
    same: str = "close",
    objective: str = "throughput",
    limits: str | Iterable[str] = (),
    store: str | os.PathLike[str] | None = None,
    on_look: OnLook | None = None,
    **axes: Values,
) -> Tuning:
    """As `deepstone.tune`, which says what the arguments mean."""
    wanted = Wanted(
        objective=parse_objective(_text("objective", objective)),
        limits=tuple(parse_limits([limits] if isinstance(limits, str) else limits or ())),
        budget_s=_budget_s(budget),
        level=_level(_text("same", same)),
    )
    memory = next((limit.most for limit in wanted.limits if limit.name == "memory"), None)
    workload = Workload.of(
        model,
        [_word(name, values) for name, values in axes.items()],
        level=wanted.level,
        limit_bytes=None if memory is None else int(memory),
        saves_memory=wanted.objective.name == "memory",
        timeout_s=wanted.timeout_s,
    )
    check_meter(workload, wanted)
    named = store if store is not None else os.environ.get("DEEPSTONE_STORE")
    opened = Store.open(default_folder() if named is None else Path(named).expanduser())
    words = [_word(name, values) for name, values in axes.items()]
    command = ("deepstone", "tune", model, *words, "--budget", f"{wanted.budget_s:g}s", *_options(wanted, objective))
    with open_log(opened, workload, wanted, command) as log:
        tuner = Tuner(workload=workload, wanted=wanted, store=opened, log=log, progress=_Quiet(on_look))
        answer = tuner.tune()
        default = workload.job(workload.space.default)
        model = default.model.name
        finding = Finding(
            schema=SCHEMA, kind=answer.KIND, model=model, outcome="ok", command=list(command), content=answer
        )
        task = task_id(answer.KIND, default.identity, "")
        stored = opened.findings.add(storable_finding(finding, default, task=task, started_at=log.started_at))
        tuner.finish()
    return Tuning(found=answer, finding=stored, _workload=workload)


def _options(wanted: Wanted, objective: str) -> list[str]:
    """What the command that repeats a search says beside its budget."""
    options: list[str] = []
    for limit in wanted.limits:
        most = f"{limit.most / 2**20:.6f}M" if limit.name == "memory" else f"{limit.most:.3f}W"
        options += ["--limit", f"{limit.name}={most}"]
    options += ["--objective", objective] if objective != "throughput" else []
    return options + (["--same", wanted.level] if wanted.level != "close" else [])


def _budget_s(budget: object) -> float:
    """Seconds. Whoever calls us from Python may give anything."""
    if budget is None:
        return BUDGET_S
    if isinstance(budget, str):
        seconds = parse_duration(budget)
    elif isinstance(budget, int | float) and not isinstance(budget, bool) and math.isfinite(budget):
        seconds = float(budget)
    else:
        raise UsageError(f"budget={budget!r}: give seconds, or a text such as '5m'; None: ten minutes")
    if seconds < LEAST_BUDGET_S:
        raise UsageError(
            f"budget={budget!r}: a search takes at least {LEAST_BUDGET_S:g} s; some minutes are usual, as in '5m'"
        )
    return seconds


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r}: must be a text")
    return value


def _level(text: str) -> SameLevel:
    for level in _LEVELS:
        if text == level:
            return level
    raise UsageError(f"same={text!r}: {nearest(text, _LEVELS)}")


def _word(name: str, values: object) -> str:
    several = [values] if isinstance(values, str | int) else values
    if not isinstance(several, Iterable):
        raise UsageError(f"{name}={values!r}: give a value, or a list of values to search over")
    return f"{name}={','.join(map(str, cast(Iterable[object], several)))}"


def _row(look: Look) -> dict[str, object]:
    failed = isinstance(look.samples_per_s, Absent)
    return {
        "kind": look.kind,
        "began_s": look.began_s,
        "took_s": look.took_s,
        "samples_per_s": None if isinstance(look.samples_per_s, Absent) else look.samples_per_s,
        "samples_per_j": None if isinstance(look.samples_per_j, Absent) else look.samples_per_j,
        "peak_bytes": None if isinstance(look.peak_bytes, Absent) else look.peak_bytes,
        "failed": look.samples_per_s.reason if failed and isinstance(look.samples_per_s, Absent) else "",
        "run": look.run,
        **look.setup,
    }


class _Quiet(Struct, frozen=True):
    """Progress that prints nothing: a library does not."""

    on_look: OnLook | None

    def begin(self, title: str) -> None: ...

    def advance(self, stage: str, share: float) -> None: ...

    def say(self, message: str) -> None: ...

    def looked(self, look: Look, tuner: Tuner) -> None:
        if self.on_look is not None:
            self.on_look(look)
