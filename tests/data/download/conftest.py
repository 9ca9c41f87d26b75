"""A server, an address without one, and short waits."""

import socket

import pytest

from lastitem.data.download import transfer
from tests.data.download.misbehaving_server import serving


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    """Some thirty waits of half a second and more; processes of their own wait as long
    as they do in earnest.
    """
    monkeypatch.setattr(transfer, "BACKOFF_SECONDS", 0.001)


@pytest.fixture
def unreachable():
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}/x"
