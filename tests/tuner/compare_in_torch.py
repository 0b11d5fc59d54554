"""Does a script's first step in torch give the reference's loss, gradients and statistics?"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import torch


def compare_in_torch(folder: Path) -> None:
    script, numbers = runpy.run_path(f"{folder}/code.py"), np.load(folder / "numbers.npz")
    model = script["make_model"]()
    step = script["make_step"](model)
    weights = list(model.parameters())
    with torch.no_grad():
        for number, weight in enumerate(weights):
            given = torch.from_numpy(numbers[f"weight{number}"])
            assert weight.shape == given.shape
            weight.copy_(given)
    assert f"weight{len(weights)}" not in numbers
    loss = step(*script["place"](torch.from_numpy(numbers["images"]), torch.from_numpy(numbers["labels"])))
    np.testing.assert_allclose(float(loss), numbers["loss"], rtol=1e-9)
    for number, weight in enumerate(weights):
        np.testing.assert_allclose(weight.grad, numbers[f"gradient{number}"], rtol=1e-7, atol=1e-9)
    learnt = [each for name, each in model.named_buffers() if "running" in name]
    assert f"buffer{len(learnt)}" not in numbers
    for number, value in enumerate(learnt):
        np.testing.assert_allclose(value, numbers[f"buffer{number}"], rtol=1e-9)
