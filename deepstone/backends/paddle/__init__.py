"""PaddlePaddle on the CPU: eager, one operation after the other, with kernels of its own over MKL."""

import warnings

warnings.filterwarnings(
    "ignore", message="No ccache found"
)  # importing Paddle searches for a compiler that it does not need
