#!/bin/sh
# After the files went. dpkg says "remove" or "purge", rpm how many versions are left.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
# What people put there themselves goes with a purge, unless an installation that is
# not the package's still uses it: its own, or what an export brought.
for gate in /etc/systemd/system/*.service.d/10-nodegate.conf /var/lib/nodegate/journal.json; do
	if [ -e "$gate" ]; then
		exit 0
	fi
done
if [ "$1" = purge ]; then
	rm -rf /etc/nodegate /var/lib/nodegate /run/nodegate
fi
