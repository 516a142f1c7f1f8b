#!/bin/sh
# In the place of the tilewright command: writes its words into the file that -o names, and counts its calls.
echo "$@" >> calls.txt
words=$*
while [ "$1" != "-o" ]; do
  [ "$1" = "--list" ] && list=$2
  shift
done
{ echo "$words"; [ -z "$list" ] || cat "$list"; } > "$2"
