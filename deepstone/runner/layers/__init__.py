"""Layer times, in place and isolated, and the finding built from them."""
