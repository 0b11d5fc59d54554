"""Runs in forms to give away, one file per form, redacted by default."""
