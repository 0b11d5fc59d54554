"""From samples to results: warm-up, intervals, ratios, doubts, meters. Controller side."""
