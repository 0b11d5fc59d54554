"""Describes this machine, and reads its load by others during measurements."""
