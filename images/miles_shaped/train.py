"""As Miles' train.py: generate, train, save, one rollout after the other."""

import asyncio

from miles.utils.arguments import parse_args
from miles_shaped.loop import train

if __name__ == "__main__":
    args = parse_args()
    assert not args.fully_async, "--fully-async requires the async driver: run train_async.py"  # noqa: S101 - as Miles says it
    asyncio.run(train(args, ahead=False))
