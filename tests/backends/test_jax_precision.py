"""Whether XLA may take TF32 on a GPU, from lines that JAX 0.10.2 wrote; gpu_options.py asks a live one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from frameworks import environment_of

LINES = """
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = \
[1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = \
[#stablehlo<precision CONV>, #stablehlo<precision CONV>]} : (tensor<2x4x4x3xf32>, tensor<3x3x3x8xf32>) -> \
tensor<2x4x4x8xf32>
    %2 = stablehlo.dot_general %1, %arg2, contracting_dims = [1] x [0], precision = [DOT, DOT] : (tensor<2x128xf32>, \
tensor<128x10xf32>) -> tensor<2x10xf32>
"""

CASES = {
    # of convolutions, of products, what the settings expect -> what is known
    ("HIGHEST", "HIGHEST", "fp32"): ("fp32", "observed"),
    ("HIGHEST", "HIGHEST", "tf32"): ("fp32", "observed"),
    ("DEFAULT", "DEFAULT", "tf32"): ("tf32", "set"),
    ("HIGH", "HIGH", "tf32"): ("tf32", "set"),
    ("HIGH", "HIGHEST", "tf32-conv"): ("tf32-conv", "set"),
    ("DEFAULT", "DEFAULT", "fp32"): ("tf32", "observed"),
    ("DEFAULT", "HIGHEST", "fp32"): ("tf32-conv", "observed"),
    ("HIGHEST", "DEFAULT", "fp32"): ("fp32 in some products and tf32 in others", "observed"),
}

ASK = """
import json, sys
from deepstone.backends.jax.effective import narrowed, seen_in

found = []
for text, expected in json.load(sys.stdin):
    seen = seen_in([text])
    assert seen.layouts == {"nhwc"} and seen.number_types == {"fp32"}, seen
    found.append(narrowed(expected, seen))
print(json.dumps(found))
"""


def test_the_program_tells_what_xla_may_do() -> None:
    """JAX is imported by its own Python only; all cases are asked of one process."""
    environment = environment_of("jax")
    asked = [
        [LINES.replace("CONV", convolution).replace("DOT", product), expected]
        for convolution, product, expected in CASES
    ]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [str(environment.program), "-c", ASK],
        input=json.dumps(asked),
        env={**os.environ, "PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [(each["value"], each["source"]) for each in json.loads(done.stdout)]
    assert dict(zip(CASES, found, strict=True)) == CASES
