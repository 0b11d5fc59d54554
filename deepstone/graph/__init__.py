"""The framework-neutral layer graph: the definition of a network."""
