"""How each kind of panel is drawn on the page."""
