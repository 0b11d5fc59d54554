"""The losses of the first 20 steps of several setups, on samples of noise and on samples like photographs.

    python bench/first_steps.py resnet50 batch=256 --setup precision=bf16-mixed --setup "framework=jax compile=default"

Whether a training survives rounding depends on the data: see deepstone/graph/batch.py. The default runs on two batches,
so that a difference between setups can be held against one between batches.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from deepstone.cli.jobs import plan
from deepstone.exchange.load import load_model
from deepstone.runner.team import talking_to
from deepstone.setups.request import expand, parse_words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("words", nargs="*", help="AXIS=VALUE of all setups")
    parser.add_argument("--setup", action="append", default=[], help="AXIS=VALUE… of one setup")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    model, found = load_model(options.model), list[dict[str, Any]]()
    for setup in ["", *options.setup]:
        [job] = plan(model, expand(parse_words([*options.words, *setup.split()])), [], [])
        with talking_to(job, timeout_s=600) as talk:
            talk.hello()
            for photographs in (False, True):
                for seed in (0,) if setup else (0, 1):
                    talk.build(data_seed=seed, like_photographs=photographs)
                    losses = talk.losses(options.steps)
                    data = "photographs" if photographs else "noise"
                    found.append({"setup": setup or "default", "data": data, "batch": seed, "losses": losses})
                    print(f"{data:<12} {setup or 'default'}, batch {seed}: {losses[0]:.4f} to {losses[-1]:.4f}")
    if options.output:
        options.output.write_text(json.dumps({"model": options.model, "words": options.words, "runs": found}, indent=1))


if __name__ == "__main__":
    main()
