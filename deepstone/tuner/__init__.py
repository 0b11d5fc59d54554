"""Finds the fastest setup of a workload here, shows how far that is certain, and says which settings made it fast."""
