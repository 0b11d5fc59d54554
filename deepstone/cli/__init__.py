"""The command line, one file per command. Importing it imports no framework; commands import what they use."""
