"""Builds the product's container images. Standard library only: it runs before anything is installed."""
