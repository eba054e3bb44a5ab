#!/bin/sh
# After unpacking. dpkg says "configure", rpm 1 (first) or 2 (upgrade).
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart nodegate-watch.service || : # it says what went wrong; the package is whole
fi
