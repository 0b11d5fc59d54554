"""The part of `verify` about several processes: each scheme, in each framework that has it, against one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from deepstone.cli.output import Data
from deepstone.errors import MissingError

if TYPE_CHECKING:
    from deepstone.results.sameness import Distance, Gap, SchemeSameness
    from deepstone.runner.job import Job
    from deepstone.runner.measurement import OnProgress
    from deepstone.setups.axes import Value
    from deepstone.setups.request import Choices

DEFAULT_SCHEME = "data"
NOT_OURS = "no framework that was checked has this scheme"

# By scheme and framework; as text, why a framework does not have it.
Schemes: TypeAlias = "dict[str, dict[str, SchemeSameness | str]]"
PlannedSchemes: TypeAlias = "dict[str, dict[str, Job | str]]"


def of_one_process(asked: Mapping[str, Value]) -> dict[str, Value]:
    """What is asked for of each process by itself, which the reference is compared with."""
    from deepstone.setups.request import complete
    from deepstone.setups.world import OF_SEVERAL, World

    if not World.of(complete(asked)).is_parallel and "accumulate" not in asked:
        return dict(asked)
    return {name: value for name, value in asked.items() if name not in OF_SEVERAL}


def plan_schemes(
    choices: Choices, jobs: Mapping[str, Job], make_job: Callable[[Mapping[str, Value]], Job]
) -> PlannedSchemes:
    """Those of the axis `scheme`, in the frameworks of the jobs, as far as the rules tell without computing."""
    asked = {name: values[0] for name, values in choices.items() if name not in ("framework", "scheme")}
    planned: PlannedSchemes = {}
    for scheme in map(str, choices.get("scheme", (DEFAULT_SCHEME,))):
        given = asked if "scheme" not in choices else {**asked, "scheme": scheme}
        of_scheme = planned.setdefault(DEFAULT_SCHEME if scheme == "auto" else scheme, {})
        for name, job in jobs.items():
            of_scheme[name] = _planned({**given, "framework": name}, job.environment.framework, make_job)
    return planned


def _planned(given: Mapping[str, Value], framework: str, make_job: Callable[[Mapping[str, Value]], Job]) -> Job | str:
    from deepstone.checks.parallel import least_batch, why_unsupported
    from deepstone.setups.axes import AXES, FRAMEWORKS
    from deepstone.setups.request import complete

    if framework in FRAMEWORKS and framework not in AXES["processes"].honoured_by:
        return f"unsupported: {framework} trains in one process only"
    job = make_job({"batch": least_batch(complete(given)), **given})
    reason = why_unsupported(job)
    return job if reason is None else f"unsupported: {reason}"


def refused_schemes(planned: PlannedSchemes) -> Schemes:
    """All of them, if the rules leave none to be checked; else nothing."""
    refused: Schemes = {
        scheme: {name: each for name, each in frameworks.items() if isinstance(each, str)}
        for scheme, frameworks in planned.items()
    }
    return refused if all(len(refused[scheme]) == len(frameworks) for scheme, frameworks in planned.items()) else {}


def check_schemes(planned: PlannedSchemes, timeout_s: float, on_progress: OnProgress) -> Schemes:
    from deepstone.checks.parallel import check_scheme

    found: Schemes = {}
    for scheme, frameworks in planned.items():
        of_scheme = found.setdefault(scheme, {})
        for name, job in frameworks.items():
            if isinstance(job, str):
                of_scheme[name] = job
                continue
            on_progress(f"{name}: scheme={scheme}", 0.0)
            checked = check_scheme(job, timeout_s=timeout_s)
            of_scheme[name] = str(checked.failure) if checked.is_unsupported else checked
    return found


def schemes_json(schemes: Schemes) -> dict[str, Data]:
    """By scheme: the worst of the frameworks that have it, and all of them."""
    written: dict[str, Data] = {}
    for scheme, frameworks in schemes.items():
        checked = [each for each in frameworks.values() if not isinstance(each, str)]
        worst = min(checked, key=lambda each: (not each.is_wrong, each.ok), default=None)
        written[scheme] = {
            **({"ok": False, "failure": NOT_OURS} if worst is None else worst.to_json()),
            "frameworks": {
                name: {"unsupported": each} if isinstance(each, str) else each.to_json()
                for name, each in frameworks.items()
            },
        }
    return written


def exit_code(schemes: Schemes) -> int:
    """0 where each scheme that can be the same is, in every framework that has it."""
    found = [each for frameworks in schemes.values() for each in frameworks.values() if not isinstance(each, str)]
    if any(each.is_missing for each in found):
        return MissingError.exit_code
    nowhere = any(all(isinstance(each, str) for each in frameworks.values()) for frameworks in schemes.values())
    return 1 if nowhere or any(each.is_wrong for each in found) else 0


def scheme_lines(schemes: Schemes, asked: Mapping[str, Value]) -> Iterator[str]:
    for scheme, frameworks in schemes.items():
        for name, found in frameworks.items():
            if isinstance(found, str):
                yield f"{name}: {found}"
            else:
                where = "in several processes" if scheme == DEFAULT_SCHEME else f"with scheme={scheme}"
                yield from _lines(f"{name} {where}", found, asked)


def _lines(who: str, found: SchemeSameness, asked: Mapping[str, Value]) -> Iterator[str]:
    from deepstone.absent import Absent

    errors = " · ".join(_error(each) for each in (found.gradient, found.update) if not isinstance(each, Absent))
    if found.ok:
        yield f"{who}: the same training as in one, in {_precision(found)} ({errors})"
    elif not found.equivalent and not found.failure:
        kind = asked.get("compression", "none")
        what = "gradients applied as they come" if kind == "none" else f"{kind} gradients"
        loss = f"loss {found.loss[-1]:.6g} and {found.loss_of_one_process[-1]:.6g}"
        yield f"{who}: {what} are not those of one process ({errors} · {loss})"
    elif found.is_missing:
        yield f"{who}: not checked: {found.why_not()}"
    else:
        yield f"{who} does NOT train as one process does: {found.why_not()}"
    if found.fp32 is not None and not isinstance(found.fp32, Absent):
        judged = (
            f" {'<' if found.fp32.gradient.ok else '>'} {found.fp32.gradient.tolerance:.0e}" if found.equivalent else ""
        )
        yield f"{who}, in fp32: {_error(found.fp32.gradient)}{judged} · {_error(found.fp32.update)} (only shown)"
    statistics = found.global_statistics
    if statistics is not None and not isinstance(statistics, Absent):
        yield (
            f"{who}: batch norm takes its statistics from each part; from one with those of the whole batch this is "
            f"apart by {_error(statistics.gradient)} · {_error(statistics.update)}"
        )


def _precision(found: SchemeSameness) -> str:
    return "float64" if found.precision == "fp64" else f"{found.precision}, as near to float64 as one process is"


def _error(distance: Distance | Gap) -> str:
    return f"{distance.what} {distance.relative_error:.0e}"
