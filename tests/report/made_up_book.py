"""Everything that a report is made of, made up: runs of two machines, findings, a study, a paper, statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from factory import JsonRecord, make_record, sha, typed_records
from report.made_up import conv_result, layers_result, memory_result, peaks, quantity
from report.made_up_charts import bars_chart, lines_chart, ratios_chart

from deepstone.analysis.facts import machine_key, machine_names
from deepstone.report.book import Sources
from deepstone.results import codec
from deepstone.results import record as results
from deepstone.results.claim import Statement
from deepstone.results.identity import canonical_sha256, run_id
from deepstone.results.study import StudyState

MODELS = ("alexnet-owt", "resnet50")
PRECISIONS = ("fp32", "bf16-mixed")


def runs(count: int = 8, **changes: Any) -> list[JsonRecord]:
    """Setups in turn; every seventh is out of memory."""
    made: list[JsonRecord] = []
    for number in range(count):
        asked: dict[str, str | int] = {
            "framework": "torch",
            "device": "cpu",
            "precision": PRECISIONS[number // 2 % 2],
            "layout": "auto",
            "seed": number // 4,
        }
        settings = {"model": MODELS[number % 2], "batch": 2 ** (number % 6), "requested": asked}
        outcome = "oom" if number % 7 == 6 else "ok"
        made.append(make_record(**{**settings, "outcome": outcome, **changes}))
    return made


def elsewhere(record: JsonRecord, name: str = "NVIDIA H200") -> JsonRecord:
    """The same run on another machine."""
    asked = {**record["setup"]["requested"], "device": "gpu:0"}
    identity: Any = {**record["identity"], "machine_sha": sha(name), "requested": asked}
    effective: Any = {**record["setup"]["effective"], "device": {"value": "gpu:0", "source": "observed"}}
    machine = {
        "cpu": {"model": "Xeon", "usable_cores": 16},
        "gpus": [{"index": 0, "name": name, "memory_bytes": 2**37}],
    }
    changed: Any = {
        **record,
        "identity": identity,
        "setup": {"requested": asked, "effective": effective},
        "environment": {**record["environment"], "machine": machine},
    }
    job = canonical_sha256(identity)
    return cast(JsonRecord, {**changed, "job": job, "id": run_id(job, 1)})


def statement(text: str = "bf16-mixed is 2.1x (2.0 – 2.2) as fast.", runs: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "text": text,
        "runs": list(runs),
        "findings": [],
        "ratio": {**quantity(2.1), "n": 3},
        "how": "3 rounds of fresh processes in random order, paired within a round",
        "rank": 5.0,
    }


def study() -> dict[str, Any]:
    def task(title: str, state: str, why: str = "") -> dict[str, Any]:
        return {"id": sha(title), "kind": "run", "title": title, "round": 1, "state": state, "why": why, "runs": []}

    return {
        "schema": 1,
        "kind": "study",
        "name": "quick",
        "title": "This machine in five minutes",
        "description": "One factor at a time from the default.",
        "resume": "deepstone study quick",
        "started_at": "2026-11-15T03:40:12.123456Z",
        "base": {},
        "figures": [],
        "tasks": [
            task("resnet50 batch=8", "done"),
            task("resnet50 batch=64", "left out", "no time: 90 s wanted, 20 s left"),
            task("resnet50 batch=128", "pruned", "batch=64 ran out of memory"),
        ],
    }


def verdict(machine: str, word: str, measured: float) -> dict[str, Any]:
    told = {"unit": "share", "setup": "", "why": "so", "runs": [], "findings": []}
    return {"machine": machine, "verdict": word, "measured": quantity(measured), **told}


def paper(runs: tuple[str, ...] = ()) -> dict[str, Any]:
    claim = {
        "id": "kim-1",
        "claim": "Convolutions take most of the time.",
        "published": {"text": "more than 90 %", "value": 0.9, "unit": "share"},
        "where": "Fig 4",
        "test": "layers of alexnet-kim, batch 32",
        "rule": "the share of convolutions in the step",
        "verdict": "weaker",
        "measured": {"median": 0.71, "low": 0.7, "high": 0.72, "n": 3},
        "unit": "share",
        "setup": "alexnet-kim, batch 32, fp32",
        "machine": "NVIDIA H200",
        "why": "70 % is below the 90 % that were published.",
        "runs": list(runs),
        "findings": [],
        "about": "gpu",
        "by_machine": [verdict("NVIDIA H200", "weaker", 0.71), verdict("2 cores", "holds", 0.93)],
    }
    untested = {
        **claim,
        "id": "kim-9",
        "verdict": "not testable here",
        "measured": {"absent": "one device"},
        "machine": "",
        "setup": "",
        "why": "needs several devices",
        "runs": [],
        "by_machine": [],
    }
    return {
        "schema": 1,
        "kind": "paper",
        "name": "kim2017",
        "title": "Performance analysis of CNN frameworks for GPUs",
        "citation": "Kim et al., ISPASS 2017",
        "setup": "a Titan X (Maxwell)",
        "scale": "small",
        "errors": ["Table II swaps two lines."],
        "claims": [claim, untested],
        "charts": [bars_chart()],
    }


def peaks_finding() -> dict[str, Any]:
    entry = {"framework": "torch", "threads": 2, "doubts": [], **peaks()}
    entry["flops_per_s"]["fp16"] = {"absent": "the CPU has no such product"}
    missing = {"device": "cpu", "framework": "jax", "absent": "not installed"}
    command = ["deepstone", "doctor", "--peaks"]
    return {"schema": 1, "kind": "peaks", "outcome": "ok", "command": command, "peaks": [entry, missing]}


def sources(**changes: Any) -> Sources:
    """A report with something in each place."""
    here = runs()
    records = [*here, *(elsewhere(record) for record in here[:2])]
    first = tuple(record["id"] for record in records[:3])
    given: dict[str, Any] = {
        "records": records,
        "findings": [layers_result("cifarnet"), conv_result("cifarnet"), memory_result("cifarnet"), peaks_finding()],
        "studies": [study()],
        "charts": [bars_chart(), lines_chart(), ratios_chart()],
        "statements": [statement(runs=first), *(statement(f"Statement number {n}.") for n in range(8))],
        "papers": [paper(first)],
    }
    return sources_of(**{**given, **changes})


def sources_of(
    *,
    records: Sequence[JsonRecord] = (),
    findings: Sequence[Any] = (),
    studies: Sequence[Any] = (),
    charts: Sequence[Any] = (),
    statements: Sequence[Any] = (),
    papers: Sequence[Any] = (),
    title: str = "",
    lead: str = "",
) -> Sources:
    """From JSON, as it is in a store and in files."""
    typed = typed_records(records)
    names = machine_names(typed)
    return Sources(
        records=[codec.convert(record, results.Record) for record in records],
        machines={record.id: names[machine_key(record)] for record in typed},
        findings=[codec.as_bare_finding(finding) for finding in findings],
        studies=[codec.convert(state, StudyState) for state in studies],
        charts=[codec.as_chart(chart) for chart in charts],
        statements=[codec.convert(each, Statement) for each in statements],
        papers=[codec.as_paper(each) for each in papers],
        title=title,
        lead=lead,
    )
