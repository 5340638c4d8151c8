"""The sidecar beside the Ray head: submits the driver once, follows it by what is on disk, and tells the operator."""
