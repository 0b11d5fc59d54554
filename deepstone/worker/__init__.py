"""The code that runs in the measured process."""
