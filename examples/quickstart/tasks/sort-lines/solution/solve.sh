#!/bin/sh
sort /app/fruits.txt > /app/sorted.txt
