#!/bin/sh
grep ERROR /app/server.log > /app/errors.txt
