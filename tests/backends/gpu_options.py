"""Options on a GPU: each is seen to be done or is said to be unknown; and dropped by the framework, it is unsupported.

Without pytest, `python tests/backends/gpu_options.py` from the root of the repository tries them all.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    beside: Mapping[str, Value] = field(default_factory=dict[str, Value])

    def __str__(self) -> str:
        return f"{self.framework} {self.axis}={self.asked}"


OPTIONS = (
    Option(framework="torch", axis="device", asked="gpu:0"),
    Option(framework="torch", axis="precision", asked="fp32"),
    Option(framework="torch", axis="precision", asked="tf32"),
    Option(framework="torch", axis="precision", asked="tf32-conv"),
    Option(framework="torch", axis="precision", asked="bf16-mixed", got="fp32"),
    Option(framework="torch", axis="precision", asked="fp16-mixed", got="fp32"),
    Option(framework="torch", axis="precision", asked="bf16", got="fp32"),
    Option(framework="torch", axis="layout", asked="nhwc", got="nchw"),
    Option(framework="torch", axis="engine", asked="native", got="cudnn"),
    Option(framework="torch", axis="algorithm", asked="heuristic"),
    Option(framework="torch", axis="algorithm", asked="benchmark", got="heuristic"),
    Option(framework="torch", axis="algorithm", asked="benchmark-all", got="heuristic"),
    Option(framework="torch", axis="algorithm", asked="deterministic", got="heuristic"),
    Option(framework="torch", axis="compile", asked="default", got="off"),
    Option(framework="torch", axis="compile", asked="reduce-overhead", got="off"),
    Option(framework="torch", axis="compile", asked="coordinate-descent", got="off"),
    Option(framework="torch", axis="compile", asked="max-autotune-no-cudagraphs", got="off"),
    Option(framework="jax", axis="device", asked="gpu:0"),
    Option(framework="jax", axis="precision", asked="fp32", got="tf32-conv"),
    Option(framework="jax", axis="precision", asked="tf32", source="set"),
    Option(framework="jax", axis="precision", asked="bf16-mixed", got="tf32"),
    Option(framework="jax", axis="layout", asked="nchw", got="nhwc"),
    Option(framework="jax", axis="algorithm", asked="heuristic", source="set"),
    Option(framework="jax", axis="compile", asked="default", got="off"),
)
DROPPABLE = tuple(option for option in OPTIONS if option.got)


def effect(option: Option, *, dropped: bool = False) -> Mapping[str, object]:
    """What was done about the axis. JobFailed where that is not what was asked."""
    environment = find_environment(option.framework)
    if dropped:
        variables = {"PYTHONPATH": str(DROPPED), "DEEPSTONE_TEST_DROP": option.framework}
        environment = replace(environment, variables={**environment.variables, **variables})
    axes: dict[str, Value] = {"device": "gpu:0", **option.beside, option.axis: option.asked}
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
