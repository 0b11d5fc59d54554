"""What records mean: contrasts between runs, charts, plain sentences."""
