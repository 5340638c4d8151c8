#!/bin/sh
echo blue > /app/color.txt
