"""Stands in for the module of this name in Miles (see the README beside)."""
