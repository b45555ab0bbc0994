"""Exporters of agentor runs to tracing systems."""
