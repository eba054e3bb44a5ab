#!/bin/sh
# Runs after the files are removed. dpkg passes "remove" or "purge"; rpm passes the number of versions left.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case $1 in
remove | purge | 0) rm -f /usr/bin/.nodegate-before /usr/bin/.nodegate-refused ;;
esac
# A purge also removes files that people put there, unless another installation still uses
# them: a copied binary, or an export.
for gate in /etc/systemd/system/*.service.d/10-nodegate.conf /var/lib/nodegate/journal.json; do
	if [ -e "$gate" ]; then
		exit 0
	fi
done
if [ "$1" = purge ]; then
	rm -rf /etc/nodegate /var/lib/nodegate /run/nodegate
fi
