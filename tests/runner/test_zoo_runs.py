"""Every network of the zoo trains on torch with default settings, and its record can be kept.

All in one process, and of each network two steps: a whole run of the largest takes minutes. `make test-zoo` runs them
as a user would.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_jobs import machine

from deepstone.measure.effort import Effort
from deepstone.measure.training import Evidence
from deepstone.models.load import load_in_process
from deepstone.models.zoo import ZOO
from deepstone.runner.assemble import draft, now
from deepstone.runner.conversation import Conversation, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched, snapshot
from deepstone.runner.new_job import make_job
from deepstone.setups.effective import contradiction
from deepstone.setups.request import complete
from deepstone.store.store import Store

LONGEST_S = 900.0
# With more or fewer of the same layers as another: AlexNet, ResNet-50 and ResNet-1001 stand for them.
LIKE_OTHERS = ("overfeat", "vgg11", "vgg16", "vgg19", "resnet101", "resnet152", "resnet5000")


def job_of(name: str) -> Job:
    command = ("deepstone", "run", name, "batch=1")
    return make_job(load_in_process(name), complete({"framework": "torch", "batch": 1}), machine(), command)


@pytest.fixture(scope="module")
def worker() -> Iterator[tuple[Conversation, Launched]]:
    with pytest.MonkeyPatch.context() as patch:
        # Tests run two at a time: two threads that wait for each other would be many times slower than one.
        patch.setenv("OMP_NUM_THREADS", "1")
        with talking_to_worker(job_of("cifarnet"), timeout_s=LONGEST_S) as conversation:
            yield conversation, Launched(hello=conversation.hello())


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of some networks are half a gigabyte: they are not kept."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("DEEPSTONE_CACHE", str(cache))
    yield
    shutil.rmtree(cache)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name in LIKE_OTHERS else name for name in ZOO]
)
def test_it_trains_and_its_record_can_be_kept(worker: tuple[Conversation, Launched], store: Store, name: str) -> None:
    conversation, started = worker
    job = job_of(name)
    assert job.broken_rule is None
    prepared = conversation.prepare(job)
    assert contradiction(job.request, prepared.effective) is None
    evidence = Evidence(phase="train", precision="fp32")
    launched = Launched(hello=started.hello, prepared=prepared, stopped="budget spent", evidence=evidence)
    evidence.first = snapshot(conversation, launched)
    launched.blocks.append(conversation.block(samples=1))
    evidence.early = snapshot(conversation, launched)
    launched.memory = conversation.memory()
    assert conversation.contradiction() is None
    kept = store.get(store.add(draft(job, [launched], started_at=now(), effort=Effort())).id).to_json()
    assert kept["outcome"] == "ok"
    # In fp32 a step at this learning rate can round away in some arrays: which ones depends on the CPU.
    assert kept["training"]["moved"] > 0.5 * kept["training"]["arrays"]
