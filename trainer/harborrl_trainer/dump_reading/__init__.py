"""What runs have dumped, as numbers: which rollouts there are and whose they are, and what is in them.

Dumps are pickles, and a volume is written by whoever trains. So no process that matters opens one: `opener` does, in
processes of its own without privileges, network, files or much memory, and only plain values and tensors are built.
"""
