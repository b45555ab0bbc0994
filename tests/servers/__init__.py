"""Real servers for tests, started on free ports of this machine and gone with the process that began them."""
