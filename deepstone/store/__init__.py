"""Where runs are kept: one checksummed file per run is the truth; everything else can be made again from those."""
