"""How a job becomes a process: argv and environment. One file per launcher."""
