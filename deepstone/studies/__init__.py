"""Studies: many jobs that are planned, measured and resumed together."""
