"""What JAX and TensorFlow share: programs that XLA compiled, profiles of them, and what their steps took."""
