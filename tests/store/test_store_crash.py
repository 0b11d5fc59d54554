"""Two controllers on one store, and controllers that are killed: nothing acknowledged is lost, nothing is twice."""

from __future__ import annotations

import random
import time

import pytest
from factory import typed_draft
from store_kit import Spawn, finished, say_go

from deepstone.store.store import Store

ADDER = """
import sys
from pathlib import Path
from factory import typed_draft
from deepstone.store.store import Store
root, writer, count, kind = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
store = Store.open(root)
sys.stdin.readline()
for number in range(count):
    batch = 8 if kind == "same" else 1 + 2 * number + writer
    command = ["deepstone", f"writer {writer}", f"number {number}"]
    print(store.add(typed_draft(batch=batch, command=command)).id, flush=True)
"""


@pytest.mark.parametrize("kind", ["same", "different"])
def test_two_controllers_adding_at_once(store: Store, spawn: Spawn, kind: str):
    processes = [spawn(ADDER, store.root, writer, 50, kind) for writer in range(2)]
    time.sleep(0.5)  # both are ready, so that they begin together
    for process in processes:
        say_go(process)
    acknowledged = [run for process in processes for run in finished(process).split()]
    assert len(set(acknowledged)) == len(acknowledged) == 100
    listing = store.rebuild()
    assert listing.damaged == ()
    assert {row.id for row in listing.rows} == set(acknowledged)
    written = {tuple(store.get(run).command[1:]) for run in acknowledged}
    assert written == {(f"writer {writer}", f"number {number}") for writer in range(2) for number in range(50)}


def test_killed_at_random_moments_everything_acknowledged_is_there_once(store: Store, spawn: Spawn):
    chance = random.Random(11)
    acknowledged: list[str] = []
    for round_ in range(20):
        process = spawn(ADDER, store.root, round_, 1_000_000, "same")
        assert process.stdout
        say_go(process)
        acknowledged.append(process.stdout.readline().strip())
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        # What was printed before the kill was acknowledged, but a line cut short was not printed yet.
        rest, _ = process.communicate()
        acknowledged += [line.strip() for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    assert len(set(acknowledged)) == len(acknowledged) > 20
    store = Store.open(store.root)
    listing = store.list()
    listed = [row.id for row in listing.rows]
    assert listing.damaged == store.rebuild().damaged == ()
    assert len(set(listed)) == len(listed)
    assert set(acknowledged) <= set(listed)
    # Besides what was acknowledged, each kill may have hit between the writing and the printing of one run.
    assert len(listed) <= len(acknowledged) + 20
    assert all(store.get(run).id == run for run in acknowledged)
    assert store.add(typed_draft()).id not in listed
    assert [*store.root.rglob("*.tmp"), *store.root.rglob("*.claim")] == []
