"""How matplotlib draws each kind of panel."""
