"""Why an exporter of OpenTelemetry failed: it returns only that it did, and logs the reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = "opentelemetry.exporter"


@contextmanager
def heard() -> Iterator[list[str]]:
    """The messages that exporters log meanwhile, in place of the application's own log."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, listener = logging.getLogger(_LOGGER), Listener(logging.WARNING)
    passed_on, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield said
    finally:
        logger.removeHandler(listener)
        logger.propagate = passed_on
