"""Frameworks of other years: each backend is one file in the syntax that its Python needs, and reads the graph as JSON."""
