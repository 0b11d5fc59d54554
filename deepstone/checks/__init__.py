"""Checks whether frameworks compute the same."""
