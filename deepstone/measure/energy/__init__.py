"""Joules from counters in hardware: one file per meter, `window` to find and read them."""
