"""Stands in for the package of this name in Megatron-LM (see the README beside)."""
