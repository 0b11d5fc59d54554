"""How training scales over processes: what communication costs, over sizes, transports and numbers of processes."""
