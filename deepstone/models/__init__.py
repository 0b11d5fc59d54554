"""The networks by name, and the way to load one that is not among them."""
