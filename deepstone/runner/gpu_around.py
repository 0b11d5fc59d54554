"""What others did with the GPU before a launch and after it, for the doubt `gpu_shared`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from deepstone.absent import Absent
from deepstone.hardware.gpu import GpuWatch
from deepstone.measure.noise import GpuUse
from deepstone.runner.conversation import variables_of
from deepstone.runner.job import Job

_NOT_YET = Absent("nobody has looked yet")


@dataclass(kw_only=True, slots=True)
class GpuAround:
    """`after` is absent until the workers have ended."""

    before: GpuUse | Absent = _NOT_YET
    after: GpuUse | Absent = _NOT_YET

    @property
    def pids_before(self) -> tuple[int, ...]:
        """Processes that were on the GPU before ours, so that they are not taken for ours."""
        compute = _NOT_YET if isinstance(self.before, Absent) else self.before.compute_pids
        return () if isinstance(compute, Absent) else compute

    def uses(self, gpu_uuid: str | None) -> dict[str, GpuUse | Absent]:
        """Both looks, if they were at the board that the worker says it ran on."""
        return {"before": _of_board(self.before, gpu_uuid), "after": _of_board(self.after, gpu_uuid)}


def _of_board(use: GpuUse | Absent, gpu_uuid: str | None) -> GpuUse | Absent:
    if isinstance(use, Absent) or isinstance(use.uuid, Absent) or gpu_uuid is None:
        return use
    # An instance of a divided board is "MIG-…" for the driver and "GPU-…" for a framework.
    same = use.uuid.partition("-")[2] == gpu_uuid.partition("-")[2]
    return use if same else Absent("another board was looked at")


@contextmanager
def watching_gpu(job: Job) -> Generator[GpuAround, None, None]:
    """Around the whole life of the job's worker; where it takes no GPU, this costs nothing."""
    with closing(GpuWatch(str(job.request["device"]), variables_of(job))) as watch:
        around = GpuAround(before=watch.look())
        yield around
        around.after = watch.look()
