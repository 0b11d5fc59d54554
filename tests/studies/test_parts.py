"""A study in parts: together they are the study, and each is measured by itself."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import UsageError
from deepstone.studies.parts import Part, parts_to_submit, slurm_script


@given(st.text(min_size=1), st.integers(1, 50))
def test_every_task_is_in_exactly_one_part(task: str, of: int):
    assert sum(Part(number=number, of=of).has(task) for number in range(1, of + 1)) == 1


@pytest.mark.parametrize("text", ["", "0/4", "5/4", "1/0", "a/b", "1", "-1/4", "1/99999"])
def test_what_is_no_part_is_refused(text: str):
    with pytest.raises(UsageError, match="2/8"):
        Part.parse(text)


def test_the_number_of_parts_may_be_given_either_way():
    assert (parts_to_submit("8"), parts_to_submit("1/8"), parts_to_submit(None)) == (8, 8, 4)


def test_the_script_measures_the_part_that_slurm_gives_it(tmp_path):
    """Run by a shell as Slurm would, with a program in the place of ours that says how it was called."""
    program = tmp_path / "deepstone"
    program.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    program.chmod(0o755)
    script = tmp_path / "quick.sbatch"
    command = (str(program), "study", "my study.toml", "batch=8")
    script.write_text(slurm_script("quick", command, 8, tmp_path / "a store"))
    done = subprocess.run(["sh", script], env={"SLURM_ARRAY_TASK_ID": "3"}, capture_output=True, text=True, check=True)
    store = f"{tmp_path}/a store-parts/part-3"
    assert done.stdout.splitlines() == ["study", "my study.toml", "batch=8", "--part", "3/8", "--store", store]
    assert "#SBATCH --array=1-8" in script.read_text().splitlines()
