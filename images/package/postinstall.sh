#!/bin/sh
# Runs after unpacking. dpkg passes "configure"; rpm passes 1 (first installation) or 2 (upgrade).
set -e
journal=/var/lib/nodegate/journal.json
copied() { [ -e $journal ] && grep -q '"/usr/local/bin/nodegate"' $journal; }
# kubelet would be held at its next start if this program does not accept the policy that is installed. A package that was refused is
# configured again once the policy is corrected.
if [ -e /usr/bin/.nodegate-refused ]; then
	mv -f /usr/bin/nodegate /usr/bin/.nodegate-before
	mv -f /usr/bin/.nodegate-refused /usr/bin/nodegate
fi
if ! copied && ls /etc/nodegate/policy.d/*.hcl 2>/dev/null | grep -q . &&
	! mistakes=$(/usr/bin/nodegate lint /etc/nodegate/policy.d 2>&1 </dev/null); then
	printf '%s\n' "$mistakes" >&2
	echo 'nodegate: the new program refuses the installed policy; correct it, and run: dpkg --configure nodegate (or reinstall the .rpm)' >&2
	if [ -e /usr/bin/.nodegate-before ]; then
		mv -f /usr/bin/nodegate /usr/bin/.nodegate-refused
		mv -f /usr/bin/.nodegate-before /usr/bin/nodegate
		echo 'nodegate: until then the program before it stays in force' >&2
	fi
	exit 1
fi
rm -f /usr/bin/.nodegate-before
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart nodegate-watch.service || : # systemctl reports the error; the package itself is complete
fi
# A binary that `nodegate install` copied, perhaps of another version, stays in force. Say so, because
# the administrator may expect the package to replace it.
if copied; then
	echo 'nodegate: /usr/local/bin/nodegate, which "nodegate install" copied, stays in force; to switch to the package, run:'
	echo '  /usr/bin/nodegate install && systemctl restart nodegate-watch'
fi
