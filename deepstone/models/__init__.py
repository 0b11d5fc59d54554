"""The model zoo, and the loading of other models."""
