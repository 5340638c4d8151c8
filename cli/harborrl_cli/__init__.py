"""The `harborrl` command line: data sets, dumps and manifests, without a cluster (docs/cli.md)."""
