"""Interprets records: contrasts between runs, charts, plain sentences."""
