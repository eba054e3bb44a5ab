#!/bin/sh
# Before the files go. dpkg says "remove" or "upgrade", rpm how many versions will be left.
#
# kubelet's drop-in calls the package's binary: without it kubelet would never start
# again. So the installation is taken back first, and where that is refused, because
# somebody changed what nodegate wrote, the package stays and says so.
set -e
case $1 in
remove | 0) ;;
*) exit 0 ;;
esac
journal=/var/lib/nodegate/journal.json
# An installation with a binary of its own does not need the package.
if [ -e $journal ] && grep -q '"/usr/local/bin/nodegate"' $journal; then
	exit 0
fi
# What an export brought has no journal either. With a program of its own it does not need the package.
if ! [ -e $journal ]; then
	for gate in /etc/systemd/system/*.service.d/10-nodegate.conf; do
		[ -e "$gate" ] || continue
		if ! grep -q '^ExecStartPre=+/usr/bin/nodegate ' "$gate"; then
			exit 0
		fi
		echo "nodegate: $gate starts kubelet by /usr/bin/nodegate: remove it first, or kubelet would not start again" >&2
		exit 1
	done
fi
/usr/bin/nodegate uninstall
# Who enabled the units by hand has no journal.
if command -v systemctl >/dev/null; then
	systemctl --quiet disable nodegate-apply.service nodegate-watch.service
fi
if [ -d /run/systemd/system ]; then
	systemctl stop nodegate-watch.service
fi
