#!/bin/sh
# After the files went. dpkg says "remove" or "purge", rpm how many versions are left.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
# What people put there themselves goes with a purge, unless an installation that is
# not the package's still uses it.
if [ "$1" = purge ] && ! [ -e /var/lib/nodegate/journal.json ]; then
	rm -rf /etc/nodegate /var/lib/nodegate /run/nodegate
fi
