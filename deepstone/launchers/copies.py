"""Several copies of Deepstone itself, as of `srun -N2 deepstone run …`: which of them measures a job.

A job of several processes starts its launcher itself, and needs one Deepstone. If each copy started the job, they would
wait for each other's nodes, or share the cores that they measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final

from msgspec import Struct

from deepstone.errors import LeftToOtherError, UsageError
from deepstone.setups.axes import Value
from deepstone.setups.world import World
from deepstone.worker import join

# Slurm sets SLURM_NTASKS in an allocation too, where nothing is copied, and others use torchrun's names.
_COUNT_OF_COPIES: Final = {"SLURM_NTASKS": "SLURM_STEP_NUM_TASKS"}
_ALSO_SET: Final = {"torchrun": "TORCHELASTIC_RUN_ID"}


class Copy(Struct, frozen=True, kw_only=True):
    launcher: str
    number: int
    count: int


def own_copy(variables: Mapping[str, str]) -> Copy | None:
    """Which copy this process is; nothing if there is one only."""
    for launcher, number, count in _places():
        if _ALSO_SET.get(launcher, number) not in variables:
            continue
        if variables.get(number, "").isdecimal() and variables.get(count, "").isdecimal():
            found = Copy(launcher=launcher, number=int(variables[number]), count=int(variables[count]))
            return found if found.count > 1 else None
    return None


def _places() -> Iterator[tuple[str, str, str]]:
    """The variables that tell a copy its number and how many there are: as ranks know it, of every launcher its own
    first. srun sets what some mpirun set too."""
    of_each = [[(name, *place) for place in places] for name, places in join.PLACES.items()]
    for turn in zip_longest(*of_each):
        for name, number, count, _ in filter(None, turn):
            yield name, number, _COUNT_OF_COPIES.get(count, count)


def check_copies(request: Mapping[str, Value], variables: Mapping[str, str]) -> None:
    """UsageError where several copies would start the same job; LeftToOtherError in all but the first of srun, which
    can start a job on the nodes of all. Copies of srun with jobs of one node each measure on their own."""
    copy, world = own_copy(variables), World.of(request)
    if copy is None or not world.is_parallel:
        return
    if copy.launcher != "srun":
        raise UsageError(
            f"{copy.launcher} started {copy.count} copies of Deepstone, and each would start the whole job; type the "
            f"command without {copy.launcher}, and with launcher={copy.launcher}: Deepstone starts it itself"
        )
    if copy.number > 0 and (world.nodes > 1 or request["launcher"] == "srun"):
        raise LeftToOtherError(
            f"srun started {copy.count} copies of Deepstone; copy {copy.number} leaves the job to copy 0, which starts "
            "its processes on all nodes"
        )
