"""Deepstone tells how fast a deep network trains here, where the time goes, and proves the answer."""

__version__ = "0.1.0"
