"""Shared code of JAX and TensorFlow: XLA's compiled programs, their profiles, and the times of their steps."""
