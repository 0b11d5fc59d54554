"""Layer times: measured inside the step and isolated, and the result made of them."""
