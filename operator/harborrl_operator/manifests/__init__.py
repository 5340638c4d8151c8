"""A manifest without a cluster: its YAML as kubectl reads it, and its form as the API server judges it."""
