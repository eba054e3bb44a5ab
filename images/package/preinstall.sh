#!/bin/sh
# Runs before unpacking. Keeps the program in force beside the new one: postinstall puts it back if the new one refuses the policy.
set -e
rm -f /usr/bin/.nodegate-before /usr/bin/.nodegate-refused
if [ -e /usr/bin/nodegate ]; then
	ln /usr/bin/nodegate /usr/bin/.nodegate-before 2>/dev/null || cp -p /usr/bin/nodegate /usr/bin/.nodegate-before
fi
