"""Joules from counters in hardware: one file per meter, `find` to pick them, `window` to read them."""
