"""Renders each kind of panel on the page."""
