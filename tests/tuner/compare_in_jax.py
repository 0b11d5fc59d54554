"""Runs in JAX's own Python: does each script's first step give the reference's loss, gradients and statistics?

In double precision: scripts in fp32 name no type where they need none.
"""

from __future__ import annotations

import runpy
import sys

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)


def leaves(tree, found):
    """In the order in which the script made them; JAX sorts names."""
    items = enumerate(tree) if isinstance(tree, list) else tree.items()
    for name, each in items:
        if isinstance(each, dict | list):
            leaves(each, found)
        else:
            found.append((tree, name))
    return found


def paired(made, tree, found):
    """The leaves of another tree in the order of the first."""
    for name, each in enumerate(made) if isinstance(made, list) else made.items():
        if isinstance(each, dict | list):
            paired(each, tree[name], found)
        else:
            found.append(tree[name])
    return found


for folder in sys.argv[1:]:
    script, numbers = runpy.run_path(f"{folder}/code.py"), np.load(f"{folder}/numbers.npz")
    made = script["init_network"](np.random.default_rng(0))
    places = leaves(made, [])
    for number, (tree, name) in enumerate(places):
        assert tree[name].shape == numbers[f"weight{number}"].shape
        tree[name] = numbers[f"weight{number}"].astype(np.float64)
    assert f"weight{len(places)}" not in numbers
    step = script["make_step"](made)
    loss = step(*script["place"](numbers["images"].astype(np.float64), numbers["labels"]))
    np.testing.assert_allclose(float(loss), numbers["loss"], rtol=1e-9)
    for number, gradient in enumerate(paired(made, step.state[1], [])):
        np.testing.assert_allclose(gradient, numbers[f"gradient{number}"], rtol=1e-6, atol=1e-8)
    if "initial_statistics" in script:
        start = script["initial_statistics"](made)
        for number, value in enumerate(paired(start, step.state[2], [])):
            np.testing.assert_allclose(value, numbers[f"buffer{number}"], rtol=1e-6)
    print(folder)  # noqa: T201
