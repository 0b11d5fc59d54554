"""A study in parts, for many machines: each measures its own tasks, and their results are imported into one store."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.errors import UsageError
from deepstone.studies.plan import Plan

MOST_PARTS: Final = 10_000
_DEFAULT_PARTS: Final = 4


class Part(Struct, frozen=True, kw_only=True):
    """One of several, counted from 1."""

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> Part:
        match = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]) <= MOST_PARTS:
            raise UsageError(f"--part {text}: must be one of so many, counted from 1, as in 2/8")
        return Part(number=int(match[1]), of=int(match[2]))

    def has(self, task: str) -> bool:
        """By the task's name alone, so that all machines agree without talking to each other."""
        return int(hashlib.sha256(task.encode()).hexdigest(), 16) % self.of == self.number - 1


def part_of(plan: Plan, part: Part) -> Plan:
    return replace(plan, tasks=tuple(task for task in plan.tasks if part.has(task.id)))


def parts_to_submit(text: str | None) -> int:
    """How many there are to be: `8`, or `1/8`."""
    if text is None:
        return _DEFAULT_PARTS
    if re.fullmatch(r"[0-9]{1,5}", text) and 1 <= int(text) <= MOST_PARTS:
        return int(text)
    return Part.parse(text).of


def slurm_script(name: str, command: Sequence[str], parts: int, store: Path) -> str:
    """An array of jobs for sbatch, each of which has a node to itself. `command` has neither part nor store."""
    folder = shlex.quote(f"{store}-parts")
    part_store = f"{folder}/part-$SLURM_ARRAY_TASK_ID"
    return f"""#!/bin/sh
# The study {name} in {parts} parts, each on a node of its own, with a store of its own. Submit it with
#   sbatch {name}.sbatch
# A part that is stopped or requeued goes on where it was. When all are done, bring them together:
#   for part in {folder}/part-*; do
#       deepstone results export --store "$part" -o part.jsonl && deepstone results import part.jsonl
#   done
#SBATCH --job-name=deepstone-{name}
#SBATCH --array=1-{parts}
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --requeue
exec {shlex.join(command)} --part "$SLURM_ARRAY_TASK_ID/{parts}" --store {part_store}
"""
