"""Servers that the tests of several stores share: each starts once, and only if a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import s3


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a real S3 server."""
    if reason := s3.missing():
        pytest.skip(reason)
    with s3.server() as endpoint:
        yield endpoint
