"""A scripted backend for tests: it computes nothing, keeps its own clock, and fails on request."""
