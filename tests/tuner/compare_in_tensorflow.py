"""Runs in TensorFlow's own Python: does each script's first step give the reference's loss, gradients and statistics?

In fp32, because TensorFlow's kernels of norms have no other; steps are not recorded, so that their parts can be called.
"""

from __future__ import annotations

import inspect
import runpy
import sys

import numpy as np
import tensorflow as tf


def variables(module, found):
    """In the order in which the script made them; TensorFlow sorts names."""
    for each in vars(module).values() if isinstance(module, tf.Module) else module:
        if isinstance(each, tf.Variable):
            found.append(each)
        elif isinstance(each, tf.Module) or (isinstance(each, list) and each and isinstance(each[0], tf.Module)):
            variables(each, found)
    return found


for folder in sys.argv[1:]:
    script, numbers = runpy.run_path(f"{folder}/code.py"), np.load(f"{folder}/numbers.npz")
    model = script["Network"]()
    step = script["make_step"](model)
    made = variables(model, [])
    weights = [each for each in made if each.trainable]
    for number, weight in enumerate(weights):
        weight.assign(numbers[f"weight{number}"])
    assert f"weight{len(weights)}" not in numbers
    parts = inspect.getclosurevars(step).nonlocals
    batch = script["place"](numbers["images"], numbers["labels"])
    loss, gradients = parts["loss_and_gradients"](*batch)
    np.testing.assert_allclose(float(loss), numbers["loss"], rtol=1e-5)
    of = {each.ref(): gradient for each, gradient in zip(parts["variables"], gradients, strict=True)}
    for number, weight in enumerate(weights):
        wanted = numbers[f"gradient{number}"]
        np.testing.assert_allclose(of[weight.ref()], wanted, rtol=1e-3, atol=1e-5 * max(1, np.abs(wanted).max()))
    for number, value in enumerate(each for each in made if not each.trainable):
        np.testing.assert_allclose(value, numbers[f"buffer{number}"], rtol=1e-4, atol=1e-6)
    print(folder)  # noqa: T201
