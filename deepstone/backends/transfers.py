"""Transfers between processes, whatever the framework: numbers by which their results are checked, and transfers beside
computing, which shows how much the two hold each other up.

    thread     transfer ─ transfer ─ transfer ─ … ─ transfer        as many as all processes agreed on
    worker     step ─ step ─ step ─ step ─ step ─ … ─ step          until the transfers are done

Only steps that lie between the begin of the first transfer and the end of the last one count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Final

import numpy as np

UNTIL_DONE: Final = -1
_PERIOD: Final = 4093  # a prime, so that no two neighbouring parts look alike


def run_beside(
    transfer: Callable[[], object],
    transfers: int,
    step: Callable[[], object],
    steps: int,
    wait: Callable[[], object],
    in_thread: AbstractContextManager[Any],
    *,
    transfer_waits: bool = False,
) -> dict[str, Any]:
    """`wait`: for what the calling thread has asked of the device. `in_thread`: around all that the thread does.
    `transfer_waits`: a transfer returns when it is done, so that the thread need not wait, where that would mean to
    wait for a step."""
    ends: list[float] = []
    failed: list[BaseException] = []
    begun, done = threading.Event(), threading.Event()

    def send() -> None:
        try:
            with in_thread:
                ends.append(time.perf_counter())
                begun.set()
                for _ in range(transfers):
                    transfer()
                    if not transfer_waits:
                        wait()
                    ends.append(time.perf_counter())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            failed.append(error)
        finally:
            begun.set()
            done.set()

    thread = threading.Thread(target=send, name="transfers", daemon=True)
    thread.start()
    begun.wait()
    stamps = [time.perf_counter()]
    while not done.is_set() if steps == UNTIL_DONE else len(stamps) <= steps:
        step()
        wait()
        stamps.append(time.perf_counter())
    thread.join()
    if failed:
        raise failed[0]
    last = ends[-1] if steps == UNTIL_DONE else stamps[-1]
    return {
        "transfer_s": [end - begin for begin, end in pairwise(ends)],
        "step_s": [end - begin for begin, end in pairwise(stamps) if end <= last],
    }


def numbers(count: int) -> Any:
    """Whole numbers that float32 adds exactly in any order."""
    return (np.arange(count) % _PERIOD).astype(np.float32)


def difference(result: Any, expected: Any) -> str:
    """Where the result is wrong, or nothing."""
    if result.shape != expected.shape:
        return f"{result.size:,} numbers, and {expected.size:,} were to come"
    wrong = np.flatnonzero(result != expected)
    if not len(wrong):
        return ""
    at = int(wrong[0])
    return f"{len(wrong):,} of {result.size:,} numbers; number {at} is {result[at]:g} and must be {expected[at]:g}"
