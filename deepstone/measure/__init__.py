"""How numbers are made from samples: warm-up, intervals, ratios, doubts, meters. Controller side."""
