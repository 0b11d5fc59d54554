"""Options on a GPU: each is seen to be done or is said to be unknown; and dropped by the framework, it is unsupported.

Without pytest, `python tests/backends/gpu_options.py` from the root of the repository tries them all.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from tiny_jobs import tiny_job

from deepstone.environments.find import find_environment
from deepstone.errors import MissingError
from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.runner.measurement import Launched, no_progress, start
from deepstone.setups.axes import Value

DROPPED = Path(__file__).parent / "dropped"
TIMEOUT_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Option:
    """`source` is how the axis is known where nothing drops it; `got` is what is seen where the framework does."""

    framework: str
    axis: str
    asked: str
    source: str = "observed"
    got: str = ""

    def __str__(self) -> str:
        return f"{self.framework} {self.axis}={self.asked}"


_COMPILED = ("default", "reduce-overhead", "coordinate-descent", "max-autotune-no-cudagraphs")
# By framework and axis: what is asked for, and what is seen where the framework drops it; "" where nothing shows that.
_TRIED: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "torch": {
        "device": {"gpu:0": ""},
        "precision": {
            **dict.fromkeys(("fp32", "tf32", "tf32-conv"), ""),
            **dict.fromkeys(("bf16-mixed", "fp16-mixed", "bf16"), "fp32"),
        },
        "layout": {"nhwc": "nchw"},
        "engine": {"native": "cudnn"},
        "algorithm": {"heuristic": "", **dict.fromkeys(("benchmark", "benchmark-all", "deterministic"), "heuristic")},
        "compile": dict.fromkeys(_COMPILED, "off"),
    },
    "jax": {
        "device": {"gpu:0": ""},
        "precision": {"fp32": "tf32-conv", "tf32": "", "bf16-mixed": "tf32"},
        "layout": {"nchw": "nhwc"},
        "algorithm": {"heuristic": ""},
        "compile": {"default": "off"},
    },
}
_NOT_OBSERVED = {("jax", "precision", "tf32"), ("jax", "algorithm", "heuristic")}
OPTIONS = tuple(
    Option(
        framework=framework,
        axis=axis,
        asked=asked,
        source="set" if (framework, axis, asked) in _NOT_OBSERVED else "observed",
        got=got,
    )
    for framework, axes in _TRIED.items()
    for axis, values in axes.items()
    for asked, got in values.items()
)
DROPPABLE = tuple(option for option in OPTIONS if option.got)


def effect(option: Option, *, dropped: bool = False) -> Mapping[str, object]:
    """What was done about the axis. JobFailed where that is not what was asked."""
    environment = find_environment(option.framework)
    if dropped:
        variables = {"PYTHONPATH": str(DROPPED), "DEEPSTONE_TEST_DROP": option.framework}
        environment = replace(environment, variables={**environment.variables, **variables})
    axes: dict[str, Value] = {"device": "gpu:0", option.axis: option.asked}
    job, launched = tiny_job(option.framework, environment=environment, **axes), Launched()
    with talking_to_worker(job, timeout_s=TIMEOUT_S) as talk:
        start(talk, job, launched, no_progress)
    assert launched.prepared is not None
    return launched.prepared.effective[option.axis].to_json()


def fault_of(option: Option, *, dropped: bool) -> str:
    """Nothing where all is as it should be."""
    expected = f"asked for {option.axis}={option.asked}, but got {option.got}" if dropped else ""
    try:
        done = effect(option, dropped=dropped)
    except JobFailed as failure:
        return "" if dropped and failure.reason == expected else f"{failure.outcome}: {failure.reason}"
    except MissingError as error:
        return str(error)
    if dropped:
        return f"the drop went unnoticed: {done}"
    wanted = {"value": option.asked, "source": option.source}
    return "" if done == wanted else f"{done} instead of {wanted}"


def main() -> int:
    failed = 0
    for dropped, options in ((False, OPTIONS), (True, DROPPABLE)):
        for option in options:
            fault = fault_of(option, dropped=dropped)
            failed += bool(fault)
            sys.stdout.write(f"{'FAILED' if fault else 'ok'}  {option}{' dropped' if dropped else ''}  {fault}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
