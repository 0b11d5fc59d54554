"""The framework-neutral layer graph: what a network is, before any framework sees it."""
