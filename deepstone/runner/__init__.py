"""Runs jobs: starts workers, talks to them, measures, compares, and makes records."""
