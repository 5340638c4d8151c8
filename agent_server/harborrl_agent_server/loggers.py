"""Harbor makes some eight loggers a trial, and `logging` keeps every one for ever."""

import logging


def forget_loggers(trial_name: str) -> None:
    """Drop the loggers of one trial from logging's registry, and from the placeholders above them.

    Under the lock under which they are made: other trials are built in threads meanwhile.
    """
    registry = logging.Logger.manager.loggerDict
    with logging._lock:  # type: ignore[attr-defined] # noqa: SLF001 - `logging` has no other that `getLogger` takes
        named = [name for name in registry if trial_name in name.split(".")]
        gone = {logger for name in named if isinstance(logger := registry.pop(name), logging.Logger)}
        if not gone:
            return
        for entry in registry.values():
            if isinstance(entry, logging.PlaceHolder):
                for logger in gone & entry.loggerMap.keys():
                    del entry.loggerMap[logger]
