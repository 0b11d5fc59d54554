"""Reads profiler traces: totals of events, and seconds per owner. Worker side: the standard library only."""
