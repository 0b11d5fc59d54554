"""`deepstone verify`: prove that frameworks compute the same thing before their speed is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import typer

from deepstone.absent import Absent
from deepstone.cli.declare import examples
from deepstone.cli.jobs import image_size, image_words, refuse_lists, refuse_opaque
from deepstone.cli.options import Axes, Hosts, Image, Json, Model, Timeout
from deepstone.cli.output import Column, Data, note, print_json, print_lines, print_table
from deepstone.cli.progress import progress_bar
from deepstone.cli.verify_schemes import (
    Schemes,
    check_schemes,
    exit_code,
    of_one_process,
    plan_schemes,
    refused_schemes,
    scheme_lines,
    schemes_json,
)
from deepstone.errors import MissingError, UsageError

if TYPE_CHECKING:
    from deepstone.checks.sameness import FrameworkSameness, Sameness
    from deepstone.models.load import LoadedModel
    from deepstone.results.sameness import Distance
    from deepstone.runner.job import Job
    from deepstone.setups.axes import Value
    from deepstone.setups.request import Choices

EXAMPLES = examples(
    "deepstone verify alexnet framework=torch,tensorflow,jax",
    "deepstone verify resnet50 framework=torch,jax layout=nhwc --json",
    "deepstone verify resnet1001 phase=forward",
    "deepstone verify resnet50 framework=torch processes=2",
    before="Without framework= every installed framework that can do it is checked; without batch= on two samples.",
)


def verify(
    model: Model,
    axes: Axes = None,
    image: Image = None,
    timeout: Timeout = 1800.0,
    hosts: Hosts = None,
    json: Json = False,
) -> None:
    """Check that frameworks compute the same: layer by layer, and whole steps, against a float64 reference.

    Exit codes: 0 all the same, 1 one differs or fails (the first layer that disagrees is named), 4 one is missing.
    """
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import parse_words

    choices = parse_words(axes or [])
    refuse_lists({name: values for name, values in choices.items() if name != "scheme"}, "verify")
    loaded = load_model(model, frameworks=choices.get("framework", ()), timeout_s=timeout, image=image_size(image))
    refuse_opaque(loaded.graph, "verify")
    # Only now what is slow to import: a word that is wrong is told at once.
    _refuse_what_is_not_checked(choices)
    from deepstone.checks.verify import verify as check

    asked = {name: values[0] for name, values in choices.items() if name != "framework"}
    given = of_one_process(asked)
    names = [str(name) for name in choices.get("framework") or _installed()]
    command = ("deepstone", "verify", model, *(axes or []), *image_words(image))

    def make(request: Mapping[str, Value]) -> Job:
        return _job(loaded, request, command)

    jobs = {name: make({**given, "framework": name}) for name in names}
    if "framework" not in choices:
        jobs = _able(jobs)
    planned = plan_schemes(choices, jobs, make) if asked != given else {}
    refused = refused_schemes(planned)
    if refused:  # before anything is computed
        _show_refused(refused, jobs, asked, as_json=json)
        raise typer.Exit(exit_code(refused))
    with progress_bar(1) as bar:
        bar.begin(f"{loaded.graph.name} {', '.join(jobs)}")
        sameness = check(jobs, yardstick=_yardstick(loaded, given, command), timeout_s=timeout, on_progress=bar.advance)
        schemes: Schemes = check_schemes(planned, timeout, bar.advance)
        bar.end()
    code = exit_code(schemes)
    if json:
        ok, parallel = sameness.ok and not code, {"parallel": schemes_json(schemes)} if schemes else {}
        print_json(_as_json(sameness, jobs) | {"ok": ok} | parallel)
    else:
        _show(sameness, jobs)
        print_lines(scheme_lines(schemes, asked), hang=4)
    if code or not sameness.ok:
        raise typer.Exit(code or 1)


def _show_refused(refused: Schemes, jobs: Mapping[str, Job], asked: Mapping[str, Value], *, as_json: bool) -> None:
    if not as_json:
        print_lines(scheme_lines(refused, asked), hang=4)
        return
    why = Absent("not computed: no framework has what was asked for")
    frameworks = {
        name: {"version": job.environment.version, "ok": False, "failure": why.reason} for name, job in jobs.items()
    }
    print_json(
        {
            "ok": False,
            **_of_model(next(iter(jobs.values()))),
            "reference": why,
            "frameworks": frameworks,
            "parallel": schemes_json(refused),
        }
    )


def _refuse_what_is_not_checked(choices: Choices) -> None:
    from deepstone.checks.workers import NOT_CHECKED
    from deepstone.setups.axes import AXES

    for name in NOT_CHECKED:
        default = AXES[name].default
        if choices.get(name, [default]) != [default]:
            raise UsageError(f"{name}={choices[name][0]}: verify checks with {name}={default} alone; leave it out")


def _installed() -> list[str]:
    from deepstone.environments.find import find_environment, installed
    from deepstone.setups.axes import AUTO

    found = [name for name, environment in installed().items() if environment is not None]
    if not found:
        find_environment(AUTO)  # says what to do about it
    return found


def _able(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """Of frameworks that nobody asked for by name, those that can do what was asked; all, where none can."""
    reasons = {name: job.broken_rule for name, job in jobs.items()}
    if all(reasons.values()):
        return dict(jobs)
    for name, reason in reasons.items():
        if reason:
            note(f"{name} is left out: {reason}")
    return {name: job for name, job in jobs.items() if not reasons[name]}


def _job(loaded: LoadedModel, given: Mapping[str, Value], command: tuple[str, ...]) -> Job:
    from deepstone.checks.workers import CHECK_BATCH, check_job
    from deepstone.runner.job import Machine
    from deepstone.runner.new_job import make_job
    from deepstone.setups.request import complete

    request = complete({"batch": CHECK_BATCH, **given})
    job = make_job(loaded, request, Machine.here(), command)
    return check_job(job, batch=job.batch)


def _yardstick(loaded: LoadedModel, given: Mapping[str, Value], command: tuple[str, ...]) -> Job | None:
    """The framework that others are measured by, with nothing asked for but the precision and where it runs."""
    from deepstone.backends.registry import YARDSTICK

    kept = ("batch", "phase", "seed", "precision", "device")
    plain = {name: value for name, value in given.items() if name in kept}
    try:
        return _job(loaded, {**plain, "framework": YARDSTICK}, command)
    except MissingError:
        return None


def _as_json(sameness: Sameness, jobs: Mapping[str, Job]) -> dict[str, Data]:
    return {
        "ok": sameness.ok,
        **_of_model(next(iter(jobs.values()))),
        "reference": {
            "what": "float64 NumPy, op by op (docs/graph.md)",
            "loss": sameness.reference.losses,
            **({} if sameness.sensitivity is None else {"moved_by_last_bits": list(sameness.sensitivity.moved)}),
        },
        "frameworks": {
            name: {"version": jobs[name].environment.version, **found.to_json()}
            for name, found in sameness.frameworks.items()
        },
    }


def _of_model(job: Job) -> dict[str, Data]:
    return {"model": job.model.name, "graph_sha": job.model.graph.sha, "batch": job.batch, "phase": job.phase}


def _show(sameness: Sameness, jobs: Mapping[str, Job]) -> None:
    columns = [
        Column(heading="framework"),
        Column(heading="layers", right=True),
        Column(heading="worst layer", wraps=16),
        Column(heading="error against\nwhat is allowed", right=True),
        Column(heading="whole step\nin float64", right=True, rank=1),
        Column(heading="whole step\nas measured", right=True, rank=1),
        Column(heading="the same"),
    ]
    rows = [
        (name if "@" in name else f"{name} {jobs[name].environment.version}", *_cells(found))
        for name, found in sameness.frameworks.items()
    ]
    print_table(columns, rows)
    print_lines(_remarks(sameness, jobs), hang=4)


def _cells(found: FrameworkSameness) -> tuple[str, ...]:
    worst = None if found.layers is None else found.layers.worst
    sharp = None if isinstance(found.float64, Absent) else max(found.float64, key=lambda d: d.badness, default=None)
    return (
        "–" if found.layers is None else str(found.layers.checked),
        "–" if worst is None else f"{worst.layer}, {worst.what}",
        _error(worst),
        _error(sharp),
        _error(None if isinstance(found.measured, Absent) else found.measured),
        "yes" if found.ok else "–" if found.failure else "NO",
    )


def _error(distance: Distance | None) -> str:
    if distance is None:
        return "–"
    return f"{distance.relative_error:.0e} {'<' if distance.ok else '>'} {distance.tolerance:.0e}"


def _remarks(sameness: Sameness, jobs: Mapping[str, Job]) -> Iterator[str]:
    for name, found in sameness.frameworks.items():
        if not found.ok:
            verdict = "could not be checked" if found.failure else "does not compute the same"
            yield f"{name} {verdict}: {found.why_not}"
        if found.layers is not None and isinstance(found.float64, Absent) and not found.failure:
            yield f"{name}: no float64 step: {found.float64.reason}"
        if found.seeds and found.ok:
            yield (
                f"{name}: with the seed asked for the whole step is beyond its bound ({found.seeds[0]}), though every "
                f"layer agrees; over {len(found.seeds)} seeds it is within. A rounding that turns a choice, such as "
                "which of two values is the larger, does that with some seeds; an error does it with all"
            )
        if isinstance(found.measured, Absent) and not found.failure:
            yield f"{name}: no bound on the whole step: {found.measured.reason}"
    job = next(iter(jobs.values()))
    if sameness.sensitivity is not None:
        yield f"in float64, {sameness.sensitivity.description()}"
    if sameness.ok:
        yield f"{', '.join(jobs)}: the same {job.model.graph.name}, to the precision of their numbers"
