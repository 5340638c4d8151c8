"""Sandboxes: Harbor environments on Kubernetes pods, and on Linux namespaces for tests without a cluster."""
