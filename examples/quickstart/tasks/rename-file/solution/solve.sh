#!/bin/sh
mv /app/draft.txt /app/final.txt
