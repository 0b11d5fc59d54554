"""How plotly draws each kind of panel."""
