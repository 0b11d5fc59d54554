"""What is kept of a run: its schema, its name, and the checks that stand between a file and the store."""
