"""Figures and reports of results, as files that stand on their own."""
