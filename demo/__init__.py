"""`make demo` and `make learn`: set everything up, apply one HarborRLJob, follow it, show what it did.

Everything below is what a user would type; each command is printed before it runs. The product needs nothing of it.
"""
