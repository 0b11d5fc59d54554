"""PyTorch: eager or compiled, on the CPU or a CUDA device."""
