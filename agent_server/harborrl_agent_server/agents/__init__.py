"""Agents that a trial may run: what each is called, what it needs, and our own host-side loop."""
