"""TensorFlow 2: a step as a graph, eagerly, or compiled by XLA."""
