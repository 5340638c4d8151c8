"""Fixtures of the tests that need a real API server and no node."""

from support.control_plane import api_server

__all__ = ["api_server"]
