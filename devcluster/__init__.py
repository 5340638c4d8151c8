"""A real Kubernetes on one machine, with or without Docker, for development and tests.

As a command: `python -m devcluster up | down | status | load IMAGE | kubeconfig`.
As a library: `devcluster.controlplane.start_control_plane` (API server only, no root)
and `devcluster.settings.Settings` for the paths of the running cluster.
"""
