"""`deepstone compare`: two setups interleaved in one run, and a verdict only where the interval supports one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from deepstone.cli.options import Axes, Budget, DryRun, Json, Model, StorePath, Target, Timeout, store_folder
from deepstone.cli.output import console, note, print_json
from deepstone.errors import UsageError
from deepstone.records.schema import is_absent

if TYPE_CHECKING:
    from deepstone.runner.job import Job
    from deepstone.runner.launch import Effort
    from deepstone.setups.axes import Value
    from deepstone.setups.request import Choices

EXAMPLES = (
    "What stands before -- holds for both sides; what follows overrides it for B. "
    "Example: deepstone compare alexnet-owt batch=16 engine=onednn -- engine=native"
)

_SIDE_B = "deepstone.compare.b"


class TwoSidedCommand(TyperCommand):
    """Keeps what follows `--` apart; options may stand on either side of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args and "--help" not in args and "-h" not in args:
            split = args.index("--")
            first_option = next((i for i in range(split + 1, len(args)) if args[i].startswith("-")), len(args))
            ctx.meta[_SIDE_B] = args[split + 1 : first_option]
            args = args[:split] + args[first_option:]
        return super().parse_args(ctx, args)


def compare(
    ctx: typer.Context,
    model: Model,
    axes: Axes = None,
    pairs: Annotated[int, typer.Option("--pairs", help="Fresh pairs of processes.", min=8)] = 8,
    target: Target = 2.0,
    budget: Budget = 20.0,
    timeout: Timeout = 900.0,
    store: StorePath = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Compare two setups, A -- B: the ratio of their times per sample with its interval, and a verdict.

    Both run in fresh pairs of processes, in turns. A winner is named only when the whole interval lies beyond 2 %.
    """
    if _SIDE_B not in ctx.meta:
        raise UsageError("compare needs two setups: MODEL A -- B, as in `compare alexnet-owt batch=16 -- layout=nhwc`")
    from deepstone.runner.launch import Effort

    job_a, job_b = _jobs(model, list(axes or []), list(ctx.meta[_SIDE_B]))
    if dry_run:
        from deepstone.cli.jobs import print_plan

        print_plan([job_a, job_b], as_json=json)
        return
    effort = Effort(target=target / 100, budget_s=budget, timeout_s=timeout)
    answer = _measured(job_a, job_b, effort, pairs, store_folder(store))
    if json:
        print_json(answer)
    else:
        _show(answer)
    if is_absent(answer["ratio"]):
        raise typer.Exit(1)


def _jobs(model: str, words: list[str], overrides: list[str]) -> tuple[Job, Job]:
    from deepstone.cli.jobs import make_job
    from deepstone.models.load import load_model
    from deepstone.runner.job import Machine
    from deepstone.setups.request import complete, parse_words

    given = _single(parse_words(words))
    changed = _single(parse_words(overrides))
    loaded, machine = load_model(model), Machine.here()
    command = ("deepstone", "compare", model, *words, "--", *overrides)
    return (
        make_job(loaded, complete(given), machine, command),
        make_job(loaded, complete({**given, **changed}), machine, command),
    )


def _single(choices: Choices) -> dict[str, Value]:
    for name, values in choices.items():
        if len(values) > 1:
            raise UsageError(f"{name}: compare takes one value on each side; put the other after --")
    return {name: values[0] for name, values in choices.items()}


def _measured(job_a: Job, job_b: Job, effort: Effort, pairs: int, store_path: Path) -> dict[str, Any]:
    """Compare, store what was measured, and give the answer as JSON has it."""
    from deepstone.cli.progress import progress_bar
    from deepstone.records.schema import absent
    from deepstone.runner.compare import compare_jobs
    from deepstone.runner.job import title
    from deepstone.store.store import Store

    store = Store.open(store_path)
    store.probe()
    with progress_bar(1) as bar:
        bar.begin(title(job_a))
        comparison = compare_jobs(job_a, job_b, effort, pairs=pairs, tell=bar.tell)
    sides: dict[str, Any] = {}
    for name, draft in (("a", comparison.a), ("b", comparison.b)):
        if draft is None:
            sides[name] = absent("not measured, because the other side failed")
        else:
            sides[name] = store.add(draft)
            note(f"stored {sides[name]['id']}")
    reason = absent("a side failed, so there is nothing to compare")
    return {
        **sides,
        "ratio": reason if comparison.ratio is None else comparison.ratio.to_json(),
        "verdict": reason if comparison.ratio is None else comparison.verdict,
        "pairing": comparison.pairing,
    }


def _show(answer: dict[str, Any]) -> None:
    from deepstone.cli.show import record_lines
    from deepstone.units import digits

    out = console()
    for name in ("a", "b"):
        if is_absent(answer[name]):
            out.print(f"{name.upper()}  {answer[name]['absent']}", markup=False)
            continue
        for number, line in enumerate(record_lines(answer[name])):
            out.print(f"{name.upper() if number == 0 else ' '}  {line}", markup=False, soft_wrap=True)
    if is_absent(answer["ratio"]):
        out.print(answer["ratio"]["absent"], markup=False)
        return
    ratio = answer["ratio"]
    out.print(
        f"time per sample, A over B: {digits(ratio['median'])}    95 % interval {digits(ratio['low'])} – "
        f"{digits(ratio['high'])} ({ratio['n']} fresh pairs of processes, {answer['pairing']})",
        markup=False,
        soft_wrap=True,
    )
    out.print(f"verdict: {answer['verdict']}", markup=False, style="bold")
