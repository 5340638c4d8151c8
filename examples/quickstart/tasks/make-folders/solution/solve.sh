#!/bin/sh
mkdir -p /app/photos/summer
