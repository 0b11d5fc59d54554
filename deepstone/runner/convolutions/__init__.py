"""The convolution lab: every algorithm on every convolution of a model."""
