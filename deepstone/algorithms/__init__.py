"""Algorithms for convolutions: the cost of each by formula, and a NumPy implementation to measure its error."""
