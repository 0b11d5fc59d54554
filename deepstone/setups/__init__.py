"""Setups: the axes, the valid combinations, and requested against effective values."""
