"""Ways to compute a convolution: what each costs by formula, and a NumPy implementation to learn its error from."""
