"""`python -m deepstone`."""

from deepstone.cli.main import main

main()
