"""Legacy frameworks: each backend is one file, in the syntax of its Python, and reads the graph as JSON."""
