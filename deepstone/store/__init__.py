"""Stores runs: one checksummed file per run is the truth; everything else can be rebuilt from those files."""
