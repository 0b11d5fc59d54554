"""What a store of many runs costs to list, export, read and report.

    python bench/large_store.py [--runs 10000] [--keep FOLDER]

The runs come from the factory of the tests: several models, batches and layouts in many rounds, each with 400 samples,
about the size of a real record. Files are written without syncing, which is not what is measured. Commands are whole
processes; their time holds the start of Python. "cold" is without an index.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from factory import JsonRecord, make_record, sealed  # noqa: E402

from deepstone.results.codec import as_record  # noqa: E402
from deepstone.results.plain import parse_json  # noqa: E402
from deepstone.store.store import Store  # noqa: E402

DEEPSTONE = [sys.executable, "-m", "deepstone"]
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
REPEATS = 5
SAMPLES = 400


def main() -> None:
    with store_of_many_runs(__doc__) as (store, _, _):
        print(json.dumps(measured(store), indent=1))


@contextmanager
def store_of_many_runs(description: str | None) -> Generator[tuple[Store, Path, int]]:
    """The store that the command line asks for, an empty folder beside it, and how many runs it has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="build the store here and leave it, or use the one that is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        yield _built(options.keep or Path(folder) / "store", options.runs), Path(folder), options.runs


def _built(root: Path, runs: int) -> Store:
    store = Store.open(root)
    if sum(1 for _ in root.glob("runs/*/*.json")) >= runs:
        return store
    for record in islice(many_records(), runs):
        path = store.layout.run_file(record["id"])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sealed(record))
    return store


def many_records() -> Iterator[JsonRecord]:
    models = ("cifarnet", "alexnet-owt", "resnet50", "vgg16", "googlenet")
    for repetition in range(1, 10**6):
        for model, batch, layout in product(models, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), ("nchw", "nhwc")):
            asked: dict[str, str | int] = {"framework": "torch", "device": "cpu", "layout": layout, "threads": 2}
            yield make_record(
                model=model,
                batch=batch,
                requested=asked,
                repetition=repetition,
                steps=SAMPLES,
                step_s=0.001 * batch,
                outcome="oom" if batch == 512 and layout == "nhwc" else "ok",
                started_at=(FIRST + timedelta(minutes=repetition, seconds=batch / 10)).strftime(
                    "%Y-%m-%dT%H:%M:%S.%fZ"
                ),
            )


def measured(store: Store) -> dict[str, Any]:
    files = list(store.root.glob("runs/*/*.json"))
    result: dict[str, Any] = {
        "runs": len(files),
        "mean_bytes": round(statistics.mean(path.stat().st_size for path in files)),
        "start_s": timed("--version"),
    }
    store.layout.index.unlink(missing_ok=True)
    result["list_cold_s"] = timed("results", "list", store=store, repeats=1)
    result["list_warm_s"] = timed("results", "list", store=store)
    result["list_filtered_s"] = timed("results", "list", "model=resnet50", "batch=8", store=store)
    result["list_json_s"] = timed("results", "list", "--json", store=store)
    result["store_list_warm_s"] = seconds(store.list)
    result["read_all_s"] = seconds(lambda: sum(1 for _ in store.records(store.list().rows)))
    for form in ("jsonl", "csv", "prometheus", "mllog"):
        result[f"export_{form}_s"] = timed("results", "export", "--format", form, store=store, repeats=1)
    result["export_private_jsonl_s"] = timed("results", "export", "--private", store=store, repeats=1)
    result["one_record_s"] = one_record(files[0])
    if subprocess.run([*DEEPSTONE, "report", "--help"], capture_output=True, cwd=ROOT, check=False).returncode == 0:
        page = store.root.parent / "report.html"
        result["report_s"] = timed("report", "-o", str(page), store=store, repeats=1)
        result["report_bytes"] = page.stat().st_size
    return result


def timed(*words: str, store: Store | None = None, repeats: int = REPEATS) -> dict[str, float]:
    """Wall time of a whole command, after one that warms the file cache where it is repeated; beside it, CPU time."""
    place = ["--store", str(store.root)] if store else []
    times = [_once([*DEEPSTONE, *words, *place]) for _ in range(repeats + (repeats > 1))][repeats > 1 :]
    walls, cpus = zip(*times, strict=True)
    wall = {"median": statistics.median(walls), "least": min(walls), "most": max(walls)}
    return {**wall, "cpu": statistics.median(cpus), "n": len(times)}


def _once(command: list[str]) -> tuple[float, float]:
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    wall_s, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds(call: Any) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def one_record(path: Path, repeats: int = 200) -> dict[str, float]:
    """What reading one record consists of."""
    data = path.read_bytes()
    content: Any = parse_json(data)
    parts = {
        "parse": lambda: parse_json(data),
        "check": lambda: as_record(content["record"]),
    }
    return {name: min(seconds(part) for _ in range(repeats)) for name, part in parts.items()}


if __name__ == "__main__":
    main()
