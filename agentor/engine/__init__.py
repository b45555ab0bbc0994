"""The engine: events, the log, the loop, stores and models."""
