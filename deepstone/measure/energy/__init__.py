"""Energy from hardware counters: one file per meter; `window` finds and reads them."""
