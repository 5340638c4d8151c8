"""`make demo` and `make learn`: set everything up, apply one HarborRLJob, follow it, show what it did.

Everything below is what a user would type; each command is printed before it runs. Nothing here is needed by the product.
"""
