"""A job -> what Miles is started with: script and flags, environment, files. Pure: no clock, no file, no client."""
