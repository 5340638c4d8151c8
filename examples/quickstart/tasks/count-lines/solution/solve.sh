#!/bin/sh
wc -l < /app/names.txt > /app/count.txt
