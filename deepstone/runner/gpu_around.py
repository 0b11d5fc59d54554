"""GPU use by other processes before and after a launch, for the doubt `gpu_shared`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.hardware.gpu import GpuMonitor
from deepstone.measure.noise import GpuUse
from deepstone.runner.conversation import variables_of
from deepstone.runner.job import Job

_NOT_YET = Absent("nobody has looked yet")


class GpuAround(Struct, kw_only=True):
    """`after` is absent until the workers have ended."""

    before: GpuUse | Absent = _NOT_YET
    after: GpuUse | Absent = _NOT_YET

    @property
    def pids_before(self) -> tuple[int, ...]:
        """Return the processes that used the GPU before ours did."""
        compute = _NOT_YET if isinstance(self.before, Absent) else self.before.compute_pids
        return () if isinstance(compute, Absent) else compute

    def uses(self, gpu_uuid: str | None) -> dict[str, GpuUse | Absent]:
        """Return both readings, if they are of the board that the worker reports."""
        return {"before": _of_board(self.before, gpu_uuid), "after": _of_board(self.after, gpu_uuid)}


def _of_board(use: GpuUse | Absent, gpu_uuid: str | None) -> GpuUse | Absent:
    if isinstance(use, Absent) or isinstance(use.uuid, Absent) or gpu_uuid is None:
        return use
    # The driver calls an instance of a divided board "MIG-…", a framework "GPU-…".
    same = use.uuid.partition("-")[2] == gpu_uuid.partition("-")[2]
    return use if same else Absent("another board was looked at")


@contextmanager
def gpu_use_around(job: Job) -> Generator[GpuAround, None, None]:
    """Read the GPU use before the job's worker starts and after it ends. Without a GPU this costs nothing."""
    with closing(GpuMonitor(str(job.request["device"]), variables_of(job))) as monitor:
        around = GpuAround(before=monitor.use_by_others())
        yield around
        around.after = monitor.use_by_others()
