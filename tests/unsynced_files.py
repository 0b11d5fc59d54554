"""Files that no test waits for the disk to have: every process sees what is written, and no test cuts the power.

Thousands of records, indexes and initial weights would wait for the disk, a tenth of all time. New processes, such as
the controllers that tests kill, do wait. tests/test_durable.py tests what is synced, and when.
"""

from __future__ import annotations

import os

sync_to_disk = os.fsync


def leave_files_unsynced() -> None:
    """In this process, and in what it forks."""
    os.fsync = _leave_it_to_the_system


def _leave_it_to_the_system(file: int) -> None: ...
