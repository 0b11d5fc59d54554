"""Findings, the results of commands other than `run`: stored at once, listed and shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec import Struct, field

from deepstone.absent import Absent
from deepstone.cli.output import Column, Data, print_json, print_lines, print_table
from deepstone.cli.stores import store_folder
from deepstone.errors import DeepstoneError, InternalError, StoreError

if TYPE_CHECKING:
    from deepstone.results.findings import Finding
    from deepstone.runner.job import Job
    from deepstone.store.store import Store


class FindingStore(Struct, frozen=True, kw_only=True):
    """Stores findings. A finding that cannot be stored is reported and still printed; `failed` has the reason."""

    store: Store
    failed: list[DeepstoneError] = field(default_factory=list[DeepstoneError])

    @staticmethod
    def open(path: Path | None) -> FindingStore:
        """Open the store for writing. Raises StoreError before anything is measured."""
        from deepstone.store.store import Store

        store = Store.open(store_folder(path))
        store.probe()
        return FindingStore(store=store)

    def keep(
        self, found: Finding, job: Job, *, started_at: str, say: Callable[[str], None], method: str = ""
    ) -> Finding:
        """Store a finding and return it with its id, or without one if it could not be stored. `method` is that of
        layers."""
        from msgspec.structs import replace

        from deepstone.durable import signals_blocked
        from deepstone.results.identity import task_id
        from deepstone.runner.findings import storable_finding

        task = task_id(found.kind, job.identity, method)
        try:
            with signals_blocked():
                stored = self.store.findings.add(storable_finding(found, job, task=task, started_at=started_at))
        except (StoreError, InternalError) as error:  # it is saved elsewhere, as the message says
            self.failed.append(error)
            say(f"deepstone: {error}")
            return found
        say(f"stored {stored.id}")
        return replace(found, id=stored.id)

    def leave_if_failed(self) -> None:
        """Exit with an error if a finding could not be stored. Call it after everything is printed."""
        if self.failed:
            raise typer.Exit(max(error.exit_code for error in self.failed))


def finding_facts(finding: Finding) -> dict[str, Data]:
    """Return the facts in which findings differ, without those that this one lacks."""
    facts: dict[str, Data] = {"id": str(finding.id), "kind": finding.kind, "started_at": str(finding.started_at)}
    if finding.model:
        facts["model"] = finding.model
    framework, device = _where(finding)
    facts |= {name: value for name, value in (("framework", framework), ("device", device)) if value}
    if finding.workload is not None:
        facts |= {"batch": finding.workload.batch, "phase": finding.workload.phase}
    facts["outcome"] = str(finding.outcome)
    if finding.setup is not None:
        facts["requested"] = dict(finding.setup.requested)
    return facts


def _where(finding: Finding) -> tuple[str, str]:
    from deepstone.results.ceilings import Ceilings
    from deepstone.results.comm import CommCurves
    from deepstone.results.convolutions import ConvolutionLab

    content = finding.content
    if isinstance(content, Ceilings) and content.peaks:
        return content.peaks[0].framework, content.peaks[0].device
    if isinstance(content, CommCurves) and content.curves and finding.environment is not None:
        return finding.environment.framework_text("name"), content.curves[0].device
    if finding.setup is None:
        return "", ""
    framework, device = finding.setup.value("framework"), finding.setup.value("device")
    environment = finding.environment
    if (
        framework == "auto" and environment is not None and (name := environment.framework_text("name"))
    ):  # conv reads back no framework
        framework = "@".join(filter(None, (name, environment.framework_text("version"))))
    if isinstance(content, ConvolutionLab) and not isinstance(content.device, Absent):
        device = content.device
    return framework, device


def list_findings(findings: Sequence[Finding]) -> None:
    """List findings in a separate table: a finding has no speed."""
    columns = [
        Column(heading="finding"),
        Column(heading="started", rank=3),
        Column(heading="kind"),
        Column(heading="model"),
        Column(heading="framework", rank=2),
        Column(heading="device", rank=1),
        Column(heading="batch", right=True),
        Column(heading="phase", rank=1),
        Column(heading="outcome"),
    ]
    names = ("id", "started_at", "kind", "model", "framework", "device", "batch", "phase", "outcome")
    rows: list[list[str]] = []
    for finding in findings:
        facts = finding_facts(finding)
        facts["started_at"] = str(facts["started_at"])[:19].replace("T", " ")
        rows.append([str(facts.get(name, "")) for name in names])
    print_table(columns, rows)


def show_finding(finding: Finding) -> None:
    """Print a finding as its command prints it."""
    import shlex

    from deepstone.cli.comm import show_comm
    from deepstone.cli.conv import show_lab
    from deepstone.cli.doctor import show_peaks
    from deepstone.cli.layers import show_layers
    from deepstone.cli.memory import show_memory
    from deepstone.cli.show_tune import show_tuned
    from deepstone.results.ceilings import Ceilings
    from deepstone.results.comm import CommCurves
    from deepstone.results.convolutions import ConvolutionLab
    from deepstone.results.tune import Tuned

    name, _ = _where(finding)
    if finding.kind == "layers":
        show_layers({name: finding}, everything=False)
    elif finding.kind == "memory":
        show_memory({name: finding}, everything=False)
    elif isinstance(finding.content, Ceilings):
        show_peaks(finding.content.peaks)
    elif isinstance(finding.content, ConvolutionLab):
        show_lab(finding)
    elif isinstance(finding.content, CommCurves):
        show_comm(finding)
    elif isinstance(finding.content, Tuned):
        show_tuned(finding.content, finding.workload)
    elif finding.content is not None:
        print_json(finding.content.to_json())
    if finding.kind not in ("layers", "memory") and finding.failure is not None:
        print_lines([f"{name}: {finding.outcome}: {finding.failure.reason}"])
    print_lines([f"  command: {shlex.join(finding.command or ())}"])
