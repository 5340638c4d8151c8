"""Miles' side of the rollout layer: agent function, generate, reward and rollout function, with Miles' signatures.

Runs inside Miles' image: syntax of Python 3.10, standard library and httpx; Miles itself is imported when it is called.
"""
