"""Environments: the installed frameworks, and the Python that runs each of them."""
