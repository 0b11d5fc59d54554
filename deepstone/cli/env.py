"""`deepstone env`: the environments of frameworks."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from deepstone.cli.completion import complete_addable, complete_environment
from deepstone.cli.declare import examples
from deepstone.cli.help import Commands
from deepstone.cli.options import Json
from deepstone.cli.output import Column, Data, note, print_json, print_lines, print_table
from deepstone.cli.progress import progress_bar
from deepstone.cli.stopped import Stopped
from deepstone.errors import DeepstoneError, UsageError, nearest, shown

if TYPE_CHECKING:
    from deepstone.cli.progress import Bar
    from deepstone.environments.add import Installation
    from deepstone.environments.cookbook import AdoptedOnly
    from deepstone.environments.environment import Environment
    from deepstone.environments.manifest import Manifest
    from deepstone.environments.recipe import Recipe
    from deepstone.runner.checkup import Checkup

app = Commands(
    help="The environments that frameworks live in, each with its own Python and exact versions.",
    epilog=examples(
        "deepstone env add tensorflow jax",
        "deepstone env add torch --python /opt/cluster/torch/bin/python",
        "deepstone env add torch7 --program ~/torch/install/bin/luajit",
        "deepstone env list",
        "deepstone env doctor",
    ),
)

Addable = Annotated[
    list[str],
    typer.Argument(
        help="A framework, or one version of it, as in tensorflow@2.21.0; `deepstone env list` shows all.",
        metavar="NAME",
        autocompletion=complete_addable,
    ),
]
Existing = Annotated[
    list[str],
    typer.Argument(
        help="An environment, or a framework that has only one.", metavar="NAME", autocompletion=complete_environment
    ),
]
SomeExisting = Annotated[
    list[str] | None,
    typer.Argument(
        help="Environments or frameworks; all if none is named.", metavar="NAME", autocompletion=complete_environment
    ),
]


@app.command("list", short_help="Environments that are there, and those that can be added.")
def list_environments(json: Json = False) -> None:
    """Environments that are there, and those that can be added."""
    from deepstone.environments.cookbook import ADOPTED_ONLY, all_recipes
    from deepstone.environments.find import own_environments
    from deepstone.environments.manifest import survey
    from deepstone.environments.places import environments_root

    found = survey(environments_root())
    made = {manifest.environment.name for manifest in found.made}
    there_already = {manifest.environment.framework for manifest in found.made}
    to_adopt = {name: about for name, about in ADOPTED_ONLY.items() if name not in there_already}
    recipes = [recipe for recipe in all_recipes() if recipe.name not in made]
    if json:
        own = [_own_described(environment) for environment in own_environments()]
        there = own + [_described(manifest) for manifest in found.made]
        described = [_recipe_described(recipe) for recipe in recipes]
        adoptable: list[dict[str, Data]] = [
            {"framework": name, "get": about.get, "needs": about.needs, "adopt": about.adopt}
            for name, about in to_adopt.items()
        ]
        print_json({"environments": there, "recipes": described, "to_adopt": adoptable})
    else:
        _show(own_environments(), found.made, recipes)
        print_lines([_to_adopt(name, about) for name, about in to_adopt.items()], hang=4)
    for unusable in found.unusable:
        if unusable.reason.startswith("damaged"):
            note(f"deepstone: {unusable.name}: {unusable.reason}; deepstone env add {unusable.name} makes it anew")


@app.command("add", short_help="Make environments, or adopt an interpreter.")
def add(
    names: Addable,
    python: Annotated[
        Path | None,
        typer.Option(
            "--python", help="Adopt this interpreter or venv, which has the framework already.", metavar="PATH"
        ),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(
            "--program",
            help="Adopt this interpreter, or the folder that it is installed in, of a framework that is no Python.",
            metavar="PATH",
        ),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option("--set", help="A variable that the adopted one needs whenever it runs.", metavar="NAME=VALUE"),
    ] = None,
    called: Annotated[
        str, typer.Option("--name", help="What to call the adopted one.", metavar="NAME", show_default="its version")
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="Make it anew though it is there.")] = False,
    json: Json = False,
) -> None:
    """Make environments from their recipes, or adopt an installation that has the framework already.

    Of several, those that fail are told at the end, and the others are made. Exit codes, of the first that failed: 3 no
    room or no permission, 4 an interpreter or a package is not to be had.
    """
    wanted = list(dict.fromkeys(names))
    installation = _installation(python, program, variables or [])
    if called and (installation is None or len(wanted) > 1):
        raise UsageError("--name goes with --python or --program and one framework")
    with _report_kept_environments():
        if installation is None:
            added, failed = _make(wanted, again=again)
        else:
            added, failed = _adopt(wanted, installation, called, again=again)
    if json:
        print_json([_described(manifest) for manifest in added])
    if failed:
        there = f"{len(added)} of {len(added) + len(failed)}"
        note(f"deepstone: not made: {', '.join(failed)}; made or there already: {there}")
        raise typer.Exit(next(iter(failed.values())).exit_code)


@app.command("remove", short_help="Remove environments; what was adopted is only forgotten.")
def remove(names: Existing, json: Json = False) -> None:
    """Remove environments. What was adopted is only forgotten."""
    from deepstone.environments.places import environments_root
    from deepstone.environments.remove import remove as remove_one
    from deepstone.environments.remove import resolve

    root = environments_root()
    found = dict.fromkeys(resolve(name, root) for name in names)  # all are found before one is removed
    with progress_bar(len(found)) as bar:
        for name in found:
            bar.begin(name)
            bar.advance("removing", 0.0)
            remove_one(name, root, _Shown(bar, name))
            bar.end()
    if json:
        print_json({"removed": list(found)})
    else:
        note(f"removed {', '.join(found)}")


@app.command("doctor", short_help="Whether environments still work, by trying them.")
def doctor(names: SomeExisting = None, json: Json = False) -> None:
    """Whether environments still work: runs the interpreter, compares versions with what was locked, trains one step.

    Exits with 1 when one is not well.
    """
    checkups = _check_up(names or [])
    if json:
        print_json({"environments": checkups})
    else:
        print_lines(_checkup_lines(checkups), hang=4)
    if not all(checkup.is_well for checkup in checkups):
        raise typer.Exit(1)


class _Shown:
    """Shows the progress of one environment on the bar; without a terminal, each stage as one line."""

    def __init__(self, bar: Bar, name: str) -> None:
        self._bar = bar
        self._name = name
        self._last = ""

    def stage(self, stage: str, detail: str, share: float) -> None:
        self._bar.advance(f"{stage} {detail}".strip(), share)
        if stage != self._last and not self._bar.is_drawn:
            note(f"{self._name}: {stage}")
        self._last = stage

    def message(self, text: str) -> None:
        self._bar.say(text)


@contextmanager
def _report_kept_environments() -> Generator[None]:
    try:
        yield
    except Stopped as stopped:
        stopped.kept = "environments already made are kept, and nothing half-made"
        raise


_Added: TypeAlias = "tuple[list[Manifest], dict[str, DeepstoneError]]"  # the errors by name


def _make(names: Sequence[str], *, again: bool) -> _Added:
    from deepstone.environments.add import build
    from deepstone.environments.cookbook import find_recipe
    from deepstone.environments.places import environments_root

    recipes = {recipe.name: recipe for recipe in map(find_recipe, names)}  # all are found before one is built
    added: list[Manifest] = []
    failed: dict[str, DeepstoneError] = {}
    with progress_bar(len(recipes)) as bar:
        for recipe in recipes.values():
            bar.begin(recipe.name)
            try:
                built = build(recipe, environments_root(), _Shown(bar, recipe.name), again=again)
            except DeepstoneError as error:
                if len(recipes) == 1:
                    raise
                failed[recipe.name] = error
                bar.say(f"deepstone: {error}")
                continue
            finally:
                bar.end()
            added.append(built.manifest)
            if built.is_new:
                bar.say(_built_line(built.manifest))
            elif built.is_outdated:
                bar.say(f"{recipe.name} is there, made from another version of its recipe; --again makes it anew")
            else:
                bar.say(f"{recipe.name} is there already")
    return added, failed


def _installation(python: Path | None, program: Path | None, assignments: Sequence[str]) -> Installation | None:
    """What is to be adopted, if anything."""
    from deepstone.environments.add import Installation

    if python is not None and program is not None:
        raise UsageError("--python and --program name two interpreters; give one of them")
    variables = dict(map(_assignment, assignments))
    if python is not None:
        return Installation(path=python, language="python", variables=variables)
    if program is not None:
        return Installation(path=program, language="lua", variables=variables)
    if assignments:
        raise UsageError("--set goes with --python or --program: a recipe sets its own variables")
    return None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
        raise UsageError(f"--set {shown(text)}: must be NAME=VALUE, as in --set LD_LIBRARY_PATH=/opt/lib")
    return name, value


def _to_adopt(framework: str, about: AdoptedOnly) -> str:
    return f"{framework} has no recipe. To get it, {about.get}. It needs {about.needs}. Then: {about.adopt}"


def _built_line(manifest: Manifest) -> str:
    from deepstone.units import bytes_

    environment = manifest.environment
    return f"made {environment.name} with {environment.program_name}, {bytes_(manifest.size_bytes)}"


def _adopt(names: Sequence[str], installation: Installation, name: str, *, again: bool) -> _Added:
    from deepstone.environments.add import adopt
    from deepstone.environments.places import environments_root

    added: list[Manifest] = []
    with progress_bar(len(names)) as bar:
        for wanted in names:
            bar.begin(wanted)
            bar.advance(f"asking {installation.path}", 0.5)
            manifest = adopt(wanted, installation, environments_root(), _Shown(bar, wanted), name=name, again=again)
            bar.end()
            added.append(manifest)
            bar.say(_adopted_line(manifest.environment))
    return added, {}


def _adopted_line(environment: Environment) -> str:
    from deepstone.environments.probe import LIBRARY

    libraries = [name.removeprefix(LIBRARY) for name in environment.lock if name.startswith(LIBRARY)]
    about = f"{environment.program_name}, {environment.program}"
    uses = f"; it uses {', '.join(libraries)}" if libraries else ""
    return f"adopted {environment.name}: {about}{uses}; framework={environment.name} runs it"


def _check_up(names: Sequence[str]) -> list[Checkup]:
    from deepstone.environments.find import own_environments
    from deepstone.environments.manifest import survey
    from deepstone.environments.places import environments_root
    from deepstone.runner.checkup import check_up, of_unusable
    from deepstone.runner.job import Machine

    found = survey(environments_root())
    environments = [*own_environments(), *(manifest.environment for manifest in found.made)]
    matching = _matching(names, [each.name for each in (*environments, *found.unusable)])
    chosen = [each for each in environments if each.name in matching]
    machine = Machine.here()
    checkups: list[Checkup] = []
    with progress_bar(len(chosen) or 1) as bar:
        for environment in chosen:
            bar.begin(environment.name)
            bar.advance("trying", 0.3)
            checkups.append(check_up(environment, machine))
            bar.end()
    return checkups + [of_unusable(each) for each in found.unusable if each.name in matching]


def _matching(names: Sequence[str], known: Sequence[str]) -> set[str]:
    """Return the environments that the names or frameworks stand for, or all."""
    matching: set[str] = set() if names else set(known)
    for name in names:
        matches = {each for each in known if name in (each, each.partition("@")[0])}
        if not matches:
            tail = nearest(name, known) if known else "there is none"
            raise UsageError(f"{shown(name)}: no such environment; {tail}")
        matching |= matches
    return matching


def _checkup_lines(checkups: Sequence[Checkup]) -> list[str]:
    lines: list[str] = []
    for checkup in checkups:
        lines.append(f"{checkup.name} ({checkup.kind}): {'well' if checkup.is_well else 'not well'}")
        lines += [f"  {problem.what}: {problem.why} → {problem.remedy}" for problem in checkup.problems]
    return lines or ["no environment is there; deepstone env list shows what can be added"]


def _named(each: Environment | Recipe) -> dict[str, Data]:
    return {key: getattr(each, key) for key in ("name", "framework", "version", "kind")}


def _own_described(environment: Environment) -> dict[str, Data]:
    return {
        **_named(environment),
        **_program_described(environment),
        "variables": environment.variables,
        "runs": environment.program.exists(),
    }


def _program_described(environment: Environment) -> dict[str, Data]:
    if environment.language == "python":
        return {"python": str(environment.program), "python_version": environment.program_version}
    return {"program": str(environment.program), "program_version": environment.program_version}


def _described(manifest: Manifest) -> dict[str, Data]:
    """Describe an environment as JSON, without fields that it lacks, such as its own size."""
    described = {**_own_described(manifest.environment), "made_at": manifest.made_at}
    return {**described, "size_bytes": manifest.size_bytes} if manifest.size_bytes else described


def _recipe_described(recipe: Recipe) -> dict[str, Data]:
    return {
        **_named(recipe),
        "python_versions": recipe.python,
        "size_bytes": recipe.size_bytes,
        "minutes": recipe.minutes,
        "default": recipe.default,
        "year": recipe.year,
        "notes": recipe.notes,
    }


def _show(own: Sequence[Environment], made: Sequence[Manifest], recipes: Sequence[Recipe]) -> None:
    from deepstone.units import bytes_

    rows = [_row(environment, "") for environment in own]
    rows += [_row(each.environment, bytes_(each.size_bytes) if each.size_bytes else "") for each in made]
    rows += [
        (
            recipe.name,
            "to add",
            " ".join(recipe.python),
            bytes_(recipe.size_bytes),
            f"about {recipe.minutes:g} min; deepstone env add {recipe.framework if recipe.default else recipe.name}",
        )
        for recipe in recipes
    ]
    columns = [
        Column(heading="environment"),
        Column(heading="kind"),
        Column(heading="Python", wraps=6),
        Column(heading="size", right=True, rank=1),
        Column(heading="where", rank=2, wraps=20),
    ]
    print_table(columns, rows)


def _row(environment: Environment, size: str) -> tuple[str, ...]:
    gone = "" if environment.program.exists() else " is gone"
    return (environment.name, environment.kind, environment.program_version, size, f"{environment.program}{gone}")
