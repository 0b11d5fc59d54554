"""How often does `deepstone compare` name a winner between two identical setups? For real, one after the other.

    python bench/null_comparisons.py --count 5 cifarnet batch=8

Prints a line per comparison and, at the end, how many named a winner; at most 1 in 20 may.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("model")
    parser.add_argument("axes", nargs="*")
    options = parser.parse_args()
    winners = 0
    for number in range(options.count):
        answer = compare(options.model, options.axes)
        winners += answer["verdict"] != "no difference shown"
        ratio = answer["ratio"]
        print(
            f"{number + 1}: {ratio['median']:.3f} ({ratio['low']:.3f} – {ratio['high']:.3f}) {answer['verdict']}",
            flush=True,
        )
    print(json.dumps({"comparisons": options.count, "winners_named": winners}))


def compare(model: str, axes: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "deepstone", "compare", model, *axes, "--", "--json", "--store", store]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    return json.loads(output.stdout)


if __name__ == "__main__":
    main()
