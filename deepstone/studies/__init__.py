"""Studies: many jobs planned, run, resumed and kept together."""
