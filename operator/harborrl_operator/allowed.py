"""Reads that make a verdict better and are no condition for one: where our rights end, they answer nothing."""

from collections.abc import Awaitable

from harborrl_operator.errors import ClusterError


async def if_allowed[Answer, Otherwise](asked: Awaitable[Answer], otherwise: Otherwise) -> Answer | Otherwise:
    """`otherwise` for what is not served or not ours to ask; any other ClusterError is raised."""
    try:
        return await asked
    except ClusterError as error:
        if error.is_refusal:
            return otherwise
        raise
