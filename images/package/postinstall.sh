#!/bin/sh
# Runs after unpacking. dpkg passes "configure"; rpm passes 1 (first installation) or 2 (upgrade).
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart nodegate-watch.service || : # systemctl reports the error; the package itself is complete
fi
# A binary that `nodegate install` copied, perhaps of another version, stays in force. Say so, because
# the administrator may expect the package to replace it.
journal=/var/lib/nodegate/journal.json
if [ -e $journal ] && grep -q '"/usr/local/bin/nodegate"' $journal; then
	echo 'nodegate: /usr/local/bin/nodegate, which "nodegate install" copied, stays in force; to switch to the package, run:'
	echo '  /usr/bin/nodegate install && systemctl restart nodegate-watch'
fi
