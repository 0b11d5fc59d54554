"""What runs inside the measured process."""
