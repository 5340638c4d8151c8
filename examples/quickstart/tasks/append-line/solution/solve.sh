#!/bin/sh
echo milk >> /app/shopping.txt
