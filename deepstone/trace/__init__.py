"""What a profiler's trace says: events summed up, and seconds per owner. Worker side: the standard library only."""
