"""How often does `deepstone compare` name a winner between two identical setups? For real, one after the other.

    python bench/null_comparisons.py --count 20
    python bench/null_comparisons.py --count 20 --load 2
    python bench/null_comparisons.py --count 5 --setup "resnet50 batch=1" -o resnet50.json

Every comparison is the product's own command on the same setup twice. With `--load N`, N processes spin beside it from
the first to the last. Setups take turns; most of them are of frameworks that start faster than torch, because a
comparison starts sixteen processes. Each comparison is saved as it ends, and a call goes on with what its file holds:
`--count` is how many the file has in the end. At most 1 in 20 may name a winner.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepstone.hardware.cpu import describe_cpu

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
NO_WINNER = "no difference shown"
SETUPS = (
    "cifarnet batch=8 framework=chainer",
    "cifarnet batch=8 framework=torch",
    "cifarnet batch=16 framework=mxnet",
    "cifarnet batch=2 framework=chainer",
    "cifarnet batch=16 framework=chainer",
    "cifarnet batch=4 framework=chainer threads=1",
    "cifarnet batch=32 framework=torch threads=1",
    "cifarnet batch=8 framework=chainer phase=forward",
    "cifarnet batch=4 framework=chainer",
    "cifarnet batch=16 framework=chainer phase=forward",
)
# Ends by itself when the script is gone, however that went.
_SPIN = """
import os
parent = int(os.environ["SPIN_FOR"])
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def main() -> None:
    options = _options()
    path: Path = options.output
    done = _read(path, options.load, options.budget)
    setups = options.setup or list(SETUPS)
    with spinning(options.load):
        while len(done["comparisons"]) < options.count:
            setup = setups[len(done["comparisons"]) % len(setups)]
            found = compare(shlex.split(setup), options.budget)
            done["comparisons"].append({"setup": setup, **found})
            _save(done, path)
            print(f"{len(done['comparisons'])}: {setup}: {_in_words(found)}, {found['took_s']:.0f} s", flush=True)
    _save(done, path)
    print(json.dumps({key: done[key] for key in ("load", "judged", "failed", "winners")}))


def compare(setup: list[str], budget_s: float) -> dict[str, Any]:
    """What `deepstone compare` says, in short; a comparison that failed has its reason and no verdict."""
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "deepstone", "compare", *setup, "--budget", str(budget_s)]
        ran = subprocess.run(
            [*command, "--json", "--store", store, "--", *setup[1:]],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
    try:
        answer = json.loads(ran.stdout)
    except ValueError:
        answer = {}
    about = {"took_s": round(time.monotonic() - began, 1), "load_before": round(load_before, 2)}
    if not isinstance(answer.get("verdict"), str):
        return {"failed": (ran.stderr.strip().splitlines() or ["no answer"])[-1], **about}
    doubts = sorted({doubt["code"] for side in "ab" for doubt in answer[side]["doubts"]})
    return {"ratio": answer["ratio"], "verdict": answer["verdict"], "doubts": doubts, **about}


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many processes that do nothing but use a core each."""
    environment = {**os.environ, "SPIN_FOR": str(os.getpid())}
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN], env=environment) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="comparisons that the file holds in the end")
    parser.add_argument("--load", type=int, default=0, help="processes that spin beside them")
    parser.add_argument("--budget", type=float, default=2.0, help="timed seconds of each side")
    parser.add_argument("--setup", action="append", help="instead of those that take turns; may be repeated")
    parser.add_argument("-o", "--output", type=Path, help="default: bench/results/null-comparisons-….json")
    options = parser.parse_args()
    if options.output is None:
        options.output = RESULTS / f"null-comparisons-{f'load-{options.load}' if options.load else 'quiet'}.json"
    return options


def _read(path: Path, load: int, budget_s: float) -> dict[str, Any]:
    here = {
        "cpu": str(describe_cpu().model),
        "cores": len(os.sched_getaffinity(0)),
        "load": load,
        "budget_s": budget_s,
    }
    if not path.exists():
        return {**here, "comparisons": []}
    known = json.loads(path.read_text(encoding="utf-8"))
    other = [key for key, value in here.items() if known.get(key) != value]
    if other:
        sys.exit(f"{path} holds comparisons with another {', '.join(other)}; move it away, or name another with -o")
    return known


def _save(done: dict[str, Any], path: Path) -> None:
    judged = [each["verdict"] for each in done["comparisons"] if "verdict" in each]
    done["judged"] = len(judged)
    done["failed"] = len(done["comparisons"]) - len(judged)
    done["winners"] = sum(verdict != NO_WINNER for verdict in judged)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def _in_words(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"failed: {found['failed']}"
    ratio = found["ratio"]
    return f"{ratio['median']:.3f} ({ratio['low']:.3f} – {ratio['high']:.3f}), {found['verdict']}"


if __name__ == "__main__":
    main()
