"""Builds the product's container images with Docker or buildah. Standard library only: it runs before anything is installed."""
