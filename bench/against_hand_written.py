"""Records of Deepstone beside a hand-written loop, setup by setup, each in fresh processes in turns.

    python bench/against_hand_written.py h200 --store STORE -o against.json

For every setup: hand-written, deepstone, hand-written, … so often as --turns says. The record holds if its rate lies
within the spread of the hand-written loop's launches and blocks, widened by the record's own interval.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent

ALEXNET, RESNET = "alexnet-kim", "resnet50"
# model, axes; the setups of a first look at the same machine, from its defaults to its best.
H200 = [
    (ALEXNET, "batch=256 precision=fp32"),
    (ALEXNET, "batch=256 precision=fp32 layout=nhwc algorithm=benchmark"),
    (ALEXNET, "batch=256 precision=tf32 layout=nhwc algorithm=benchmark"),
    (ALEXNET, "batch=256 precision=bf16-mixed layout=nhwc algorithm=benchmark"),
    (ALEXNET, "batch=1024 precision=bf16-mixed layout=nhwc algorithm=benchmark"),
    (RESNET, "batch=256 precision=fp32"),
    (RESNET, "batch=256 precision=tf32 algorithm=benchmark"),
    (RESNET, "batch=256 precision=bf16-mixed algorithm=benchmark"),
    (RESNET, "batch=256 precision=bf16-mixed layout=nhwc algorithm=benchmark"),
    (RESNET, "batch=256 precision=bf16 layout=nhwc algorithm=benchmark optimizer=momentum-fused"),
]
H200_COMPILED = [
    (RESNET, "batch=256 precision=bf16-mixed layout=nhwc compile=default"),
]
LISTS = {"h200": H200, "h200-last": H200[-2:], "h200-compiled": H200_COMPILED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", choices=LISTS)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--store", required=True)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model, axes in LISTS[options.list]:
        rows.append(beside(model, axes.split(), options))
        print(json.dumps(rows[-1]), flush=True)
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


def beside(model: str, axes: list[str], options: argparse.Namespace) -> dict[str, Any]:
    hand: list[list[float]] = []
    record: dict[str, Any] = {}
    for turn in range(options.turns):
        hand.append(hand_written(model, dict(axis.split("=") for axis in axes), options.device))
        if turn == 0:
            record = deepstone(model, axes, options)
    rate = record["summary"]["samples_per_s"]
    blocks = [value for launch in hand for value in launch]
    low, high = float(np.min(blocks)), float(np.max(blocks))
    return {
        "model": model,
        "axes": axes,
        "run": record["id"],
        "deepstone_images_per_s": rate,
        "hand_written_images_per_s": {
            "medians": [float(np.median(launch)) for launch in hand],
            "least": low,
            "most": high,
        },
        "ratio": rate["median"] / float(np.median(blocks)),
        "within_spread": rate["low"] <= high and rate["high"] >= low,
        "doubts": [doubt["code"] for doubt in record["doubts"]],
    }


def deepstone(model: str, axes: list[str], options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "deepstone", "run", model, *axes, f"device={options.device}"]
    command += ["--json", "--store", options.store]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)


def hand_written(model: str, axes: dict[str, str], device: str) -> list[float]:
    command = [sys.executable, str(ROOT / "bench" / "hand_written.py"), model, "--batch", axes["batch"]]
    command += ["--device", "cuda" if device == "gpu" else "cpu", "--precision", axes.get("precision", "fp32")]
    command += ["--layout", axes.get("layout", "nchw"), "--compile", axes.get("compile", ""), "--seconds", "4"]
    if axes.get("algorithm") == "benchmark":
        command.append("--benchmark")
    if axes.get("optimizer") == "momentum-fused":
        command.append("--fused")
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["images_per_s"]


if __name__ == "__main__":
    main()
