"""The `agentor` command."""
