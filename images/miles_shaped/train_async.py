"""As Miles' train_async.py: the next rollout is generated while this one is trained on."""

import asyncio

from miles.utils.arguments import parse_args
from miles_shaped.loop import train

if __name__ == "__main__":
    asyncio.run(train(parse_args(), ahead=True))
