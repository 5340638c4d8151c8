#!/bin/sh
cat /app/note.txt
echo Lisbon > /app/city.txt
