"""Export formats, one file per format, redacted by default."""
