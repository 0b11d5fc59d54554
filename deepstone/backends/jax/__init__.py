"""JAX: a step compiled by XLA as one program, on the CPU or a GPU."""
