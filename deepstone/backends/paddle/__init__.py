"""PaddlePaddle on the CPU: eager, one operation after the other, with kernels of its own over MKL."""
