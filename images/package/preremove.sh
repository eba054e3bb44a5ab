#!/bin/sh
# Runs before the files are removed. dpkg passes "remove" or "upgrade"; rpm passes the number of versions
# that will be left.
#
# kubelet's drop-in calls the package's binary: without it kubelet would never start again. So uninstall
# runs first. If it refuses, because a file that nodegate wrote was changed, the removal fails as well.
set -e
case $1 in
remove | 0) ;;
*) exit 0 ;;
esac
journal=/var/lib/nodegate/journal.json
# An installation with its own copy of the binary does not need the package.
if [ -e $journal ] && grep -q '"/usr/local/bin/nodegate"' $journal; then
	exit 0
fi
# An export has no journal either. If it has its own copy of the binary, it does not need the package.
if ! [ -e $journal ]; then
	for gate in /etc/systemd/system/*.service.d/10-nodegate.conf; do
		[ -e "$gate" ] || continue
		if ! grep -q '^ExecStartPre=+.* /usr/bin/nodegate gate' "$gate"; then
			exit 0
		fi
		echo "nodegate: $gate runs /usr/bin/nodegate before kubelet: remove that file first, or kubelet will not start again" >&2
		exit 1
	done
fi
/usr/bin/nodegate uninstall
# If the units were enabled without nodegate install, there is no journal: disable them here.
if command -v systemctl >/dev/null; then
	systemctl --quiet disable nodegate-apply.service nodegate-watch.service
fi
if [ -d /run/systemd/system ]; then
	systemctl stop nodegate-watch.service
fi
