"""What this machine is, and what else goes on in it while it measures."""
