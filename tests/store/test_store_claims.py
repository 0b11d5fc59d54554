"""Claims: one holder at a time, and the dead hold nothing."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import pytest
from factory import sha, typed_draft
from msgspec.structs import replace
from store_kit import Spawn, finished, say_go

from deepstone.errors import StoreError, UsageError
from deepstone.store.files import Owner
from deepstone.store.store import Store

JOB = sha("a job")

HOLDER = """
import sys
from pathlib import Path
from deepstone.store.store import Store
claim = Store.open(Path(sys.argv[1])).claim_job(sys.argv[2])
print("held" if claim else "refused", flush=True)
sys.stdin.read()
"""


def held_by(store: Store, stamp: str) -> None:
    store.layout.claims.mkdir(exist_ok=True)
    (store.layout.claims / f"{JOB}.claim").write_text(stamp)


def test_a_claim_is_held_once_and_can_be_had_again(store: Store):
    with store.claim_job(JOB) as claim:
        assert claim
        assert store.claim_job(JOB) is None
        assert store.claim_job(sha("another job")) is not None
    assert store.claim_job(JOB) is not None


def test_a_claim_is_released_when_the_work_fails(store: Store):
    claim = store.claim_job(JOB)
    assert claim
    with pytest.raises(ZeroDivisionError), claim:
        raise ZeroDivisionError
    assert store.claim_job(JOB) is not None


@pytest.mark.parametrize("job", ["", "../x", "ab", JOB.upper(), JOB + "\n"])
def test_only_a_job_can_be_claimed(store: Store, job: str):
    with pytest.raises(UsageError, match="is not the name of a job"):
        store.claim_job(job)


def test_a_living_process_keeps_its_claim_and_a_killed_one_loses_it(store: Store, spawn: Spawn):
    holder = spawn(HOLDER, store.root, JOB)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    assert store.claim_job(JOB) is None
    Store.open(store.root)  # cleans, but not what is in use
    assert store.claim_job(JOB) is None
    holder.send_signal(signal.SIGKILL)
    # Not waited for: a zombie is as dead as one that was reaped.
    deadline_s = time.monotonic() + 60
    while (claim := store.claim_job(JOB)) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert claim


def test_a_claim_of_another_boot_is_taken_over(store: Store):
    held_by(store, replace(Owner.myself(), boot="00000000-0000-0000-0000-000000000000").text)
    assert store.claim_job(JOB) is not None


def test_a_claim_of_another_host_is_respected(store: Store):
    """On a shared file system we cannot see whether its process lives; taking it over would measure twice."""
    other = replace(Owner.myself(), boot="00000000-0000-0000-0000-000000000000", host="node2")
    held_by(store, other.text)
    assert Owner.parse(other.text) == other
    assert store.claim_job(JOB) is None
    Store.open(store.root)
    assert store.claim_job(JOB) is None


def test_a_claim_of_another_boot_without_a_host_is_taken_over(store: Store):
    """As earlier versions wrote them."""
    held_by(store, replace(Owner.myself(), boot="00000000-0000-0000-0000-000000000000", host="").text)
    assert store.claim_job(JOB) is not None


def test_a_claim_of_an_earlier_process_with_our_pid_is_taken_over(store: Store):
    myself = Owner.myself()
    held_by(store, replace(myself, started_ticks=myself.started_ticks - 1).text)
    assert store.claim_job(JOB) is not None


@pytest.mark.parametrize("stamp", ["", "garbage", "1.2", "é" * 10])
def test_a_claim_without_an_owner_is_being_written_until_it_is_old(store: Store, stamp: str):
    held_by(store, stamp)
    assert store.claim_job(JOB) is None
    old_s = time.time() - 60
    os.utime(store.layout.claims / f"{JOB}.claim", (old_s, old_s))
    assert store.claim_job(JOB) is not None


def test_without_hard_links_a_claim_is_held_once_all_the_same(store: Store, monkeypatch: pytest.MonkeyPatch):
    def no_links(self: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    with store.claim_job(JOB) as claim:
        assert claim
        assert store.claim_job(JOB) is None
    assert store.claim_job(JOB) is not None


def test_a_claim_that_was_taken_over_is_not_released_by_its_first_holder(store: Store):
    claim = store.claim_job(JOB)
    assert claim
    held_by(store, "1.1.00000000-0000-0000-0000-000000000000")
    claim.release()
    assert claim.path.exists()


def test_opening_clears_what_the_dead_left(store: Store):
    dead = replace(Owner.myself(), started_ticks=1)
    held_by(store, dead.text)
    for folder in (store.layout.tmp, store.layout.runs):
        folder.mkdir(exist_ok=True)
        (folder / f"{dead.text}.0123456789ab.tmp").touch()
    ours = store.layout.tmp / f"{Owner.myself().text}.0123456789ab.tmp"
    ours.touch()
    Store.open(store.root)
    assert [path.name for path in store.layout.claims.glob("*.claim")] == []
    assert list(store.root.rglob("*.tmp")) == [ours]


def test_a_run_whose_name_is_claimed_by_another_gets_the_next_attempt(store: Store):
    draft = typed_draft()
    store.layout.claims.mkdir()
    (store.layout.claims / f"{draft.job[:20]}-1.claim").write_text(Owner.myself().text)
    assert store.add(draft).id.endswith("-2")


RACER = """
import sys
from pathlib import Path
from deepstone.store.store import Store
store = Store.open(Path(sys.argv[1]))
sys.stdin.readline()
print("held" if store.claim_job(sys.argv[2]) else "refused", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("round_", range(3))
def test_of_many_that_find_a_dead_claim_one_gets_it(store: Store, spawn: Spawn, round_: int):
    racers = [spawn(RACER, store.root, JOB) for _ in range(4)]
    time.sleep(0.3)
    held_by(store, replace(Owner.myself(), started_ticks=1).text)
    for racer in racers:
        say_go(racer)
    answers = [racer.stdout.readline() for racer in racers if racer.stdout]
    assert sorted(answers) == ["held\n"] + ["refused\n"] * 3
    for racer in racers:
        finished(racer)


def test_a_search_on_another_host_says_how_it_can_be_had(store: Store):
    with store.tunes.claim("a") as claim:
        with pytest.raises(StoreError, match=f"process {os.getpid()} is at this very search"):
            store.tunes.claim("a")
        elsewhere = replace(claim.owner, boot=claim.owner.boot[::-1], host="elsewhere")
        claim.path.write_text(elsewhere.text)
    with pytest.raises(StoreError, match=rf"process {os.getpid()} on elsewhere .* remove {claim.path}$"):
        store.tunes.claim("a")
