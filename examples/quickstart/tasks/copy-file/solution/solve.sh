#!/bin/sh
cp /app/notes.txt /app/backup.txt
