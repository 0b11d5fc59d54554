"""Figures and tables of the papers in their own form, as chart data; nothing is drawn here."""
