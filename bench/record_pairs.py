"""Records fresh pairs of identical setups, as `deepstone compare` runs them, for tests/measure to replay.

    python bench/record_pairs.py [--pairs 16] [--budget 24] [-o tests/measure/recorded_pairs.json]

A pair is two workers of one and the same setup, started fresh and measured in turns. What their times differ by is
what a comparison must not take for a difference.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from deepstone.environments.find import find_environment
from deepstone.measure.effort import Effort
from deepstone.models.load import load_in_process
from deepstone.results.record import Draft
from deepstone.runner.compare import ROUNDS, compare_jobs
from deepstone.runner.job import Job, Machine
from deepstone.setups.request import complete

MODEL = "cifarnet"
REQUEST = {"framework": "torch", "device": "cpu", "batch": 8}
DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "measure" / "recorded_pairs.json"


def rounds(draft: Draft) -> list[list[list[float]]]:
    """The step times of every launch: of the rounds alone, for what came before them is warm-up."""
    launches = [launch.ranks[0].blocks for launch in draft.samples.launches]
    return [[[float(f"{step_s:.5g}") for step_s in block.step_s] for block in blocks[-ROUNDS:]] for blocks in launches]


def record(pairs: int, budget_s: float) -> dict[str, Any]:
    machine = Machine.here()
    job = Job(
        model=load_in_process(MODEL),
        request=complete(REQUEST),
        environment=find_environment("torch"),
        machine=machine,
        command=("deepstone", "compare", MODEL, *(f"{name}={value}" for name, value in REQUEST.items()), "--"),
    )
    comparison = compare_jobs([job, job], Effort(budget_s=budget_s), groups=pairs, on_progress=on_progress)
    a, b = comparison.sides
    if a is None or b is None or not comparison.ratios:
        raise SystemExit(f"a side failed: {comparison}")
    return {
        "what": "step times in seconds: pairs of launches of one setup, [a, b], each a list of blocks",
        "made_by": f"bench/record_pairs.py --pairs {pairs} --budget {budget_s:g}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": MODEL,
        "request": REQUEST,
        "cpu": str(machine.cpu.model),
        "usable_cores": machine.usable_cores,
        "torch": torch.__version__,
        "ratio": comparison.ratios[0].time_ratio.to_json(),
        "doubts": sorted({doubt.code for draft in (a, b) for doubt in draft.doubts}),
        "pairs": [list(pair) for pair in zip(rounds(a), rounds(b), strict=True)],
    }


def on_progress(stage: str, share: float) -> None:
    print(f"{share:4.0%}  {stage}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--budget", type=float, default=24.0, help="seconds of timed steps per side, over all pairs")
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT_OUTPUT)
    arguments = parser.parse_args()
    recorded = record(arguments.pairs, arguments.budget)
    arguments.output.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes, ratio {recorded['ratio']}")


if __name__ == "__main__":
    main()
