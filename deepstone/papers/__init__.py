"""The source studies: their sweeps, figures, published numbers and claims, and the verdict on each claim."""
