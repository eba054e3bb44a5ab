#!/bin/sh
# After unpacking. dpkg says "configure", rpm 1 (first) or 2 (upgrade).
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart nodegate-watch.service || : # it says what went wrong; the package is whole
fi
# A copy of another version or of an image stays in force: whoever installed the package
# may believe that it is not.
journal=/var/lib/nodegate/journal.json
if [ -e $journal ] && grep -q '"/usr/local/bin/nodegate"' $journal; then
	echo 'nodegate: /usr/local/bin/nodegate, which "nodegate install" copied, stays in force; to put the package in its place, run:'
	echo '  /usr/bin/nodegate install && systemctl restart nodegate-watch'
fi
