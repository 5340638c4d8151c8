"""Who may ask for what: one secret, carried as a bearer token."""

import hmac


def is_bearer(secret: str, authorization: str) -> bool:
    """Whether the header's value carries the secret, in a time that does not tell how much of it was right."""
    scheme, _, token = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), secret.encode())


def may_act(secret: str, authorization: str) -> bool:
    """Without a secret the network decides who reaches us; with one, only its bearer may."""
    return not secret or is_bearer(secret, authorization)


def headers_with(secret: str) -> dict[str, str]:
    """What a request to a server with this secret needs; nothing without one."""
    return {"Authorization": f"Bearer {secret}"} if secret else {}
