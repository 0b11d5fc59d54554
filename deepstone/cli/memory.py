"""`deepstone memory`: the memory of a step, layer by layer, predicted and measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.absent import Absent
from deepstone.cli.declare import examples, flag
from deepstone.cli.draw import FigureFile, check_figure
from deepstone.cli.findings import FindingStore
from deepstone.cli.jobs import (
    findings_of,
    image_size,
    image_words,
    plan,
    present,
    refuse_lists,
    refuse_several_processes,
)
from deepstone.cli.options import Axes, Image, Json, Model, StorePath, Timeout
from deepstone.cli.output import Column, print_lines, print_table
from deepstone.errors import UsageError, shown
from deepstone.setups.request import changed
from deepstone.units import bytes_, percent

if TYPE_CHECKING:
    from deepstone.cli.progress import Bar
    from deepstone.results.findings import Finding
    from deepstone.results.memory import LargestBatch, LayerMemory, MemoryUse, PredictedMemory
    from deepstone.runner.job import Job


EXAMPLES = examples(
    "deepstone memory resnet50 batch=8",
    "deepstone memory vgg16 phase=forward --all",
    "deepstone memory alexnet-owt --largest-batch --memory 2GiB",
)
MOST_ROWS = 30
_KINDS = ("parameters", "gradients", "optimizer", "activations")
_COLUMNS = (
    Column(heading="layer"),
    Column(heading="op", rank=3),
    Column(heading="parameters", right=True, rank=1),
    Column(heading="gradients", right=True, rank=2),
    Column(heading="optimizer", right=True, rank=2),
    Column(heading="activations", right=True),
    Column(heading="kept,\nmeasured", right=True, rank=1),
    Column(heading="workspace,\nmeasured", right=True, rank=1),
    Column(heading="predicted", right=True),
)
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])(i?))?b?\s*", re.IGNORECASE | re.ASCII)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_MOST_BYTES = 2**50


def memory(
    model: Model,
    axes: Axes = None,
    image: Image = None,
    largest_batch: Annotated[bool, flag("--largest-batch", "Find the largest batch that fits, by running it.")] = False,
    limit: Annotated[
        str | None,
        typer.Option(
            "--memory",
            help="The memory that a batch must fit into, like 2GiB.",
            metavar="SIZE",
            show_default="what the device has",
        ),
    ] = None,
    output: FigureFile = None,
    everything: Annotated[bool, flag("--all", "Every layer, not only the large ones.")] = False,
    timeout: Timeout = 900.0,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Parameters, gradients, optimizer state and activations of each layer, and the peak that a step really has.

    Only framework may list several values. What was found is stored, and `results show` prints it again. Exit codes:
    0 all ok, 1 some framework failed, 3 it could not be stored, 4 something is missing.
    """
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import expand, parse_words

    if limit is not None and not largest_batch:
        raise UsageError("--memory: says what a batch must fit into, so it needs --largest-batch")
    limit_bytes = None if limit is None else size_bytes(limit)
    choices = parse_words(axes or [])
    refuse_lists(choices, "memory")
    check_figure(output)
    requests = expand(choices)
    refuse_several_processes(requests, "memory")
    loaded = load_model(model, frameworks=choices.get("framework", ()), timeout_s=timeout, image=image_size(image))
    # Imported only now, because it is slow: wrong words are reported at once.
    from deepstone.runner.findings import memory_finding

    options = changed(("--timeout", timeout, 900.0))
    options += ["--largest-batch"] if largest_batch else []
    options += ["--memory", str(limit_bytes)] if limit_bytes is not None else []
    jobs = plan(loaded, requests, ("deepstone", "memory", model), [*image_words(image), *options])

    def find(job: Job, bar: Bar) -> Finding:
        return memory_finding(
            job, timeout_s=timeout, largest=largest_batch, limit_bytes=limit_bytes, on_progress=bar.advance
        )

    finding_store = FindingStore.open(store)
    present(
        findings_of(jobs, find, finding_store),
        show=lambda reports: show_memory(reports, everything=everything),
        output=output,
        json=json,
        store=finding_store,
    )


def show_memory(findings: Mapping[str, Finding], *, everything: bool) -> None:
    from deepstone.results.memory import MemoryUse

    for number, (name, finding) in enumerate(findings.items()):
        if number:
            print_lines([""])
        use = finding.content if isinstance(finding.content, MemoryUse) else None
        if finding.outcome == "ok" and use is not None:
            _show(finding, use, everything)
        else:
            print_lines([f"{name}: {finding.outcome}: {finding.failure.reason if finding.failure else ''}"])
        if use is not None and use.largest_batch is not None:
            print_lines(["", *_largest_lines(use.largest_batch)], hang=4)


def _show(finding: Finding, use: MemoryUse, everything: bool) -> None:
    print_lines([_headline(finding, use), ""], hang=4)
    if use.layers:
        shown, rest = _largest(use.layers, everything)
        rows = [_row(layer.name, layer.op, [layer]) for layer in shown]
        if rest:
            rows.append(_row(f"{len(rest)} others", "", rest))
        rows.append(_row("all layers", "", use.layers))
        columns, rows = _columns(use, rows)
        print_table(columns, rows)
        print_lines([""])
    print_lines(_totals(use), hang=4)


def _columns(use: MemoryUse, rows: list[list[str]]) -> tuple[list[Column], list[list[str]]]:
    """Return the columns and rows. A user's own module has no prediction, only activations kept for backward."""
    if not isinstance(use.predicted, Absent):
        return list(_COLUMNS), rows
    kept = next(at for at, column in enumerate(_COLUMNS) if column.heading.startswith("kept"))
    columns = [*_COLUMNS[:-1], Column(heading="together", right=True)]
    return columns[:kept] + columns[kept + 1 :], [row[:kept] + row[kept + 1 :] for row in rows]


def _headline(finding: Finding, use: MemoryUse) -> str:
    from deepstone.results.view import setup_words

    where = setup_words(finding.setup, "precision", "layout", "engine")
    return f"{finding.model} · batch {use.batch} · {use.phase} · {where}"


def _largest(layers: Sequence[LayerMemory], everything: bool) -> tuple[list[LayerMemory], list[LayerMemory]]:
    """Return the largest layers, in the order of the network, and the rest."""
    if everything or len(layers) <= MOST_ROWS:
        return list(layers), []
    ranked = sorted(layers, key=lambda layer: -(sum(_kinds(layer)) + _bytes_or_zero(layer.kept_bytes)))
    chosen = {layer.name for layer in ranked[:MOST_ROWS]}
    return [each for each in layers if each.name in chosen], [each for each in layers if each.name not in chosen]


def _kinds(sizes: LayerMemory | PredictedMemory) -> tuple[int, int, int, int]:
    """Return the sizes in the order of `_KINDS`."""
    return sizes.parameters_bytes, sizes.gradients_bytes, sizes.optimizer_bytes, sizes.activations_bytes


def _row(name: str, op: str, layers: Sequence[LayerMemory]) -> list[str]:
    """Return the row of one or several layers. They use their workspaces in turn, so the largest counts."""
    sums = [sum(sizes) for sizes in zip(*map(_kinds, layers), strict=True)]
    kept = sum(_bytes_or_zero(layer.kept_bytes) for layer in layers)
    workspace = max(_bytes_or_zero(layer.workspace_bytes) for layer in layers)
    return [name, op, *map(_size, (*sums, kept, workspace, sum(sums)))]


def _totals(use: MemoryUse) -> list[str]:
    predicted, measured, peak = use.predicted, use.measured, use.measured_peak_bytes
    assert predicted is not None
    assert measured is not None
    assert peak is not None
    lines: list[str] = []
    if isinstance(predicted, Absent):
        lines.append(f"predicted: nothing: {predicted.reason}")
    else:
        parts = ", ".join(f"{kind} {bytes_(size)}" for kind, size in zip(_KINDS, _kinds(predicted), strict=True))
        lines.append(f"predicted {bytes_(predicted.total_bytes)}: {parts}")
    if isinstance(peak, Absent):
        lines.append(f"measured: nothing: {peak.reason}")
    else:
        on_host = isinstance(measured.process.get("device_allocated_bytes"), Absent)
        how = "by which the process grew beyond the framework itself" if on_host else "in the framework's allocator"
        share = ""
        if not isinstance(predicted, Absent):
            share = f", of which {percent(predicted.total_bytes / peak)} was predicted"
        lines.append(f"measured  {bytes_(peak)} at its peak, {how}{share}")
    if isinstance(measured.kept_bytes, Absent):
        lines.append(f"  layer by layer nothing was measured: {measured.kept_bytes.reason}")
    else:
        lines.append(f"  kept for backward: {bytes_(measured.kept_bytes)} measured")
    if isinstance(measured.workspace_bytes, Absent) and not isinstance(measured.kept_bytes, Absent):
        lines.append(f"  workspace: {measured.workspace_bytes.reason}")
    return lines


def _largest_lines(found: LargestBatch) -> list[str]:
    tries = "; ".join(
        f"{each.batch:,} {each.outcome}"
        + ("" if isinstance(each.peak_bytes, Absent) else f" ({bytes_(each.peak_bytes)})")
        for each in found.tried
    )
    beyond = found.too_large
    certain = "no larger one was run" if isinstance(beyond, Absent) else f"{beyond:,} does not fit"
    answer = f"largest batch {found.confirmed:,} (predicted {found.predicted:,}); {certain}"
    if not found.confirmed:
        answer = "no batch fits"
    return [answer, f"  limit: {found.limit}", f"  tried: {tries}"]


def _bytes_or_zero(size: int | Absent) -> int:
    return 0 if isinstance(size, Absent) else size


def _size(size: int) -> str:
    return bytes_(size) if size else ""


def size_bytes(text: str) -> int:
    """Parse a size: KiB, MiB … are powers of 1024, KB, MB … of 1000; a plain number is bytes. Raises UsageError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{shown(text)}: not a size of memory; write it like 2GiB, 500MB or 1073741824")
    number, letter, binary = found.groups()
    scale = 1 if letter is None else (1024 if binary else 1000) ** _POWERS[letter.lower()]
    value = round(float(number) * scale)
    if not 1 <= value <= _MOST_BYTES:
        raise UsageError(f"{shown(text)}: a size of memory is from 1 byte to 1024TiB")
    return value
