"""Environments: where each framework is installed and which Python runs it."""
