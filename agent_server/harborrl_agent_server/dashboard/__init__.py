"""The dashboard: read-only pages on a port of their own, in the server's process."""
