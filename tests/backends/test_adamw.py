"""AdamW in every framework that has it: the first update is that of torch.optim.AdamW on the same gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shared_workers import shared_worker
from tiny_jobs import tiny_job
from workbench import Bench

from deepstone.backends.base import ADAM_LEARNING_RATE, ADAMW_DECAY
from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.setups.axes import Value

pytestmark = pytest.mark.usefixtures("unoptimized_xla")


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_the_update_is_that_of_torch(framework: str) -> None:
    def make_job(**axes: Value):
        return tiny_job(framework, device="cpu", threads=1, precision="fp64", **axes)

    with shared_worker(make_job(), timeout_s=280) as talk:
        bench = Bench(talk, make_job)
        bench.prepare(phase="gradient")
        before, gradients = bench.arrays("parameters"), bench.arrays("gradients")
        bench.prepare(optimizer="adam")
        adam = bench.arrays("parameters")
        losses = bench.losses(optimizer="adamw")
        bench.prepare(optimizer="adamw")
        after = bench.arrays("parameters")
    assert losses[-1] < losses[0]
    for name, start in before.items():
        weight = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
        weight.grad = torch.tensor(gradients[name], dtype=torch.float64)
        torch.optim.AdamW([weight], lr=ADAM_LEARNING_RATE, weight_decay=ADAMW_DECAY).step()
        expected = weight.detach().numpy()
        assert np.allclose(after[name], expected, rtol=0, atol=1e-10)
        decayed = adam[name] - ADAM_LEARNING_RATE * ADAMW_DECAY * start
        assert np.allclose(after[name], decayed, rtol=0, atol=1e-10)
    assert not np.allclose(after["dense/weight"], adam["dense/weight"], rtol=0, atol=1e-8)


def test_a_framework_without_it_says_so() -> None:
    with talking_to_worker(tiny_job("mxnet", optimizer="adamw"), timeout_s=280) as talk:
        talk.hello()
        with pytest.raises(JobFailed, match="adamw") as caught:
            talk.prepare()
    assert caught.value.outcome == "unsupported"
