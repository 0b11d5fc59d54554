"""Checks the table of a study file and makes a study. Errors name the place and the nearest valid name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import field

from deepstone.analysis.figure_request import read_figure
from deepstone.errors import UsageError, nearest, shown
from deepstone.models.zoo import ZOO
from deepstone.results.parts import Json
from deepstone.results.plain import is_list, is_object
from deepstone.setups.axes import AXES, Value
from deepstone.studies.durations import parse_duration
from deepstone.studies.study import MEASURES, NAME, ONS, ORDERS, RERUNS, VARIES, Effort, Rules, Study, Sweep
from deepstone.studies.toml_lines import Place
from deepstone.studies.values import Listed, Values, brief, parse_range, parse_value

STUDY_KEYS: Final = ("title", "description", "effort", "plan", "jobs", "figures")
EFFORT_KEYS: Final = ("repetitions", "target", "budget", "timeout", "phases")
PLAN_KEYS: Final = ("order", "seed", "time", "rerun")
SWEEP_KEYS: Final = ("measure", "model", "vary", "exclude", "priority", "method", "on", *EFFORT_KEYS)
METHODS: Final = ("both", "in-place", "isolated")
OF_PEAKS: Final = ("framework", "device")
MOST_REPETITIONS: Final = 1000
_LONGEST_S: Final = 30 * 86400

_T = TypeVar("_T")
_Table: TypeAlias = Mapping[str, object]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`shown`: the name in messages. `folder`: the base of relative paths. `lines`: empty for Python."""

    shown: str
    folder: Path | None = None
    lines: Mapping[Place, int] = field(default_factory=dict[Place, int])

    def at(self, place: Place) -> str:
        """Return `FILE, line N` of this place or of its parent; the keys if there are no lines."""
        if not self.lines:
            keys = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
            return f"{self.shown}: {keys}" if keys else self.shown
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.shown}, line {self.lines[place]}" if place else self.shown

    def refused(self, place: Place, why: str) -> UsageError:
        return UsageError(f"{self.at(place)}: {why}")


def read_table(table: object, source: Source, *, name: str) -> Study:
    """Raises UsageError for anything that docs/studies.md does not allow."""
    return _Reader(source).study(table, name)


def no_use_in(measure: str, axis: str, values: Values) -> str:
    """Return why the convolution lab refuses one of these values; empty if it does not, and for other measures."""
    if measure != "conv" or not isinstance(values, Listed):
        return ""
    from deepstone.setups.rules import lab_refusal

    return next(filter(None, (lab_refusal(axis, value) for value in values.values)), "")


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source

    def study(self, given: object, name: str) -> Study:
        table = self._table((), given, STUDY_KEYS, "a study")
        if not NAME.fullmatch(name):
            raise UsageError(f"{self._source.shown}: {shown(name)} is no name for a study; rename the file")
        common = self._effort(("effort",), self._table(("effort",), table.get("effort", {}), EFFORT_KEYS, "effort"))
        jobs = self._tables(("jobs",), table.get("jobs", []))
        if not jobs:
            raise self._source.refused((), "has no [[jobs]], so there is nothing to measure")
        return Study(
            name=name,
            title=self._text(("title",), table.get("title", name)),
            description=self._text(("description",), table.get("description", "")),
            sweeps=tuple(self._sweep(("jobs", number), each, common) for number, each in enumerate(jobs)),
            rules=self._rules(table.get("plan", {})),
            figures=tuple(self._figures(self._tables(("figures",), table.get("figures", [])))),
        )

    def _rules(self, given: object) -> Rules:
        place: Place = ("plan",)
        table = self._table(place, given, PLAN_KEYS, "plan")
        time = table.get("time")
        return Rules(
            order=self._one_of((*place, "order"), table.get("order", "random"), ORDERS),
            seed=self._whole((*place, "seed"), table.get("seed", 1), 0, 2**31 - 1),
            time_s=None if time is None else self._time((*place, "time"), time),
            rerun=self._one_of((*place, "rerun"), table.get("rerun", "never"), RERUNS),
        )

    def _effort(self, place: Place, table: _Table, common: Effort | None = None) -> Effort:
        """A sweep inherits the effort of the study where it sets none."""
        base = common or Effort()
        repetitions, budget = table.get("repetitions", base.repetitions), table.get("budget", base.budget_s)
        return Effort(
            repetitions=None
            if repetitions is None
            else self._whole((*place, "repetitions"), repetitions, 1, MOST_REPETITIONS),
            target_share=self._number((*place, "target"), table["target"], 0.01, 100) / 100
            if "target" in table
            else base.target_share,
            budget_s=None if budget is None else self._number((*place, "budget"), budget, 0.01, 86400),
            timeout_s=self._number((*place, "timeout"), table.get("timeout", base.timeout_s), 0.1, _LONGEST_S),
            phases=self._truth((*place, "phases"), table.get("phases", base.phases)),
        )

    def _sweep(self, place: Place, given: object, common: Effort) -> Sweep:
        table = self._table(place, given, (*SWEEP_KEYS, *AXES), "jobs")
        measure = self._one_of((*place, "measure"), table.get("measure", "run"), MEASURES)
        axes = {axis: self._values((*place, axis), axis, table[axis]) for axis in table if axis in AXES}
        self._check_axes(place, measure, table, axes)
        # The common budget applies to runs and layers; the lab has its own for every algorithm of every convolution.
        ours = Effort(
            repetitions=common.repetitions if measure == "run" else None,
            target_share=common.target_share,
            budget_s=common.budget_s if measure in ("run", "layers") else None,
            timeout_s=common.timeout_s,
            phases=common.phases,
        )
        return Sweep(
            measure=measure,
            models=self._models(place, table, measure),
            axes=axes,
            vary=self._one_of((*place, "vary"), table.get("vary", "grid"), VARIES),
            exclude=tuple(self._excluded((*place, "exclude"), table.get("exclude", []))),
            effort=self._effort(place, table, ours),
            # Other measures are compared with the ceilings, so these come first.
            tier=self._whole((*place, "priority"), table.get("priority", -1 if measure == "peaks" else 0), -99, 99),
            method=self._one_of((*place, "method"), table.get("method", "both"), METHODS),
            on=self._one_of((*place, "on"), table.get("on", "any"), ONS),
            where=self._source.at(place),
        )

    def _check_axes(self, place: Place, measure: str, table: _Table, axes: Mapping[str, Values]) -> None:
        if measure != "layers" and "method" in table:
            raise self._source.refused((*place, "method"), "method: only layers are timed in several ways")
        for axis, values in axes.items():
            if measure == "peaks" and axis not in OF_PEAKS:
                raise self._source.refused((*place, axis), f"{axis}: peaks takes {' and '.join(OF_PEAKS)} only")
            reason = no_use_in(measure, axis, values)
            if reason:
                raise self._source.refused((*place, axis), reason)

    def _models(self, place: Place, table: _Table, measure: str) -> tuple[str, ...]:
        if measure == "peaks":
            if "model" in table:
                raise self._source.refused((*place, "model"), "model: peaks are those of the machine; leave it out")
            return ()
        if "model" not in table:
            raise self._source.refused(place, 'has no model; write model = "alexnet-owt" or a list of models')
        given = table["model"]
        place = (*place, "model")
        entries = enumerate(given) if is_list(given) else None
        listed = [(place, given)] if entries is None else [((*place, number), each) for number, each in entries]
        if not listed:
            raise self._source.refused(place, "model: the list is empty")
        return self._once(place, "model", [self._model(where, each) for where, each in listed])

    def _model(self, place: Place, given: object) -> str:
        if not isinstance(given, str):
            raise self._source.refused(place, f"model: a model is named by text, not {brief(given)}")
        if given in ZOO:
            return given
        if not any(character in given for character in "/:."):
            raise self._source.refused(place, f"no model {given!r} in the zoo; {nearest(given, ZOO.names())}")
        if self._source.folder is not None and not Path(given).is_absolute():
            path = self._source.folder / given
            if Path(str(path).rpartition(":")[0] if ".py:" in given else path).exists():
                return str(path)
        return given

    def _values(self, place: Place, axis: str, given: object) -> Values:
        if is_object(given):
            return self._checked(place, lambda: parse_range(axis, given))
        if not is_list(given):
            return Listed(values=(self._checked(place, lambda: parse_value(axis, given)),))
        if not given:
            raise self._source.refused(place, f"{axis}: the list is empty")
        values: list[Value] = []
        for number, entry in enumerate(given):
            values.append(self._checked((*place, number), lambda entry=entry: parse_value(axis, entry)))
        return Listed(values=self._once(place, axis, values))

    def _excluded(self, place: Place, given: object) -> Iterable[Mapping[str, Value]]:
        for number, each in enumerate(self._tables(place, given)):
            where = (*place, number)
            table = self._table(where, each, (*AXES, "model"), "exclude")
            if not table:
                raise self._source.refused(where, "exclude: an empty table would exclude everything")
            yield {
                axis: self._model((*where, axis), value)
                if axis == "model"
                else self._checked((*where, axis), lambda axis=axis, value=value: parse_value(axis, value))
                for axis, value in table.items()
            }

    def _figures(self, tables: Sequence[object]) -> Iterable[dict[str, Json]]:
        for number, each in enumerate(tables):
            place: Place = ("figures", number)
            if not is_object(each):
                raise self._source.refused(place, "figures: each is a table [[figures]]")
            table = each
            form = {key: table[key] for key in ("form",) if key in table}  # decides which other keys are valid
            for key, value in {**form, **table}.items():
                self._checked((*place, key), lambda key=key, value=value, form=form: read_figure({**form, key: value}))
            self._checked(place, lambda table=table: read_figure(table))
            yield msgspec.convert(table, dict[str, Json])

    def _table(self, place: Place, given: object, known: Iterable[str], what: str) -> _Table:
        if not is_object(given):
            raise self._source.refused(place, f"{what}: must be a table, not {brief(given)}")
        names = tuple(known)
        for key in given:
            if key not in names:
                raise self._source.refused((*place, key), f"{shown(key)}: no such key; {nearest(key, names)}")
        return given

    def _tables(self, place: Place, given: object) -> Sequence[object]:
        if not is_list(given):
            raise self._source.refused(place, f"{place[-1]}: must be a list of tables, not {brief(given)}")
        return given

    def _text(self, place: Place, given: object) -> str:
        if not isinstance(given, str):
            raise self._source.refused(place, f"{place[-1]}: must be text, not {brief(given)}")
        return " ".join(given.split())

    def _time(self, place: Place, given: object) -> float:
        if isinstance(given, str):
            return self._checked(place, lambda: parse_duration(given))
        return self._number(place, given, 0.01, 365 * 86400)

    def _whole(self, place: Place, given: object, least: int, most: int) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
            why = f"{place[-1]}: must be a whole number from {least} to {most}, not {brief(given)}"
            raise self._source.refused(place, why)
        return given

    def _number(self, place: Place, given: object, least: float, most: float) -> float:
        if not isinstance(given, int | float) or isinstance(given, bool) or not least <= given <= most:
            raise self._source.refused(
                place, f"{place[-1]}: must be a number from {least:g} to {most:g}, not {brief(given)}"
            )
        return float(given)

    def _truth(self, place: Place, given: object) -> bool:
        if not isinstance(given, bool):
            raise self._source.refused(place, f"{place[-1]}: must be true or false, not {brief(given)}")
        return given

    def _one_of(self, place: Place, given: object, known: Sequence[_T]) -> _T:
        found = next((each for each in known if each == given), None)
        if found is None:
            words = [str(each) for each in known]
            raise self._source.refused(place, f"{place[-1]} = {brief(given)}: {nearest(str(given), words)}")
        return found

    def _once(self, place: Place, what: str, values: Sequence[_T]) -> tuple[_T, ...]:
        twice = next((value for number, value in enumerate(values) if value in values[:number]), None)
        if twice is not None:
            raise self._source.refused(place, f"{what}: {twice} is listed twice")
        return tuple(values)

    def _checked(self, place: Place, read: Callable[[], _T]) -> _T:
        """Call `read`. Raises UsageError with the place if it fails."""
        try:
            return read()
        except UsageError as error:
            raise self._source.refused(place, str(error)) from None
