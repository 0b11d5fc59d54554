"""Figures: results as pictures, in files that can be given away."""
