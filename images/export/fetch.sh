# Fetches nodegate to @BIN@, and lets only the verified binary run.
#   fetch   fetch it and put it in place, or print the reason for a failure on the console
#   check   exit 0 if the binary may run
#   gate    hold the calling unit: run the binary's gate if the binary may run
set -u
bin=@BIN@
@FROM@
told=/run/nodegate-fetch

sum_of() { sha256sum <"$1" | cut -d' ' -f1; }

# say TEXT: print to the journal, and to the console unless the last message there was the same.
say() {
	echo "nodegate: $*" >&2
	[ "$(cat $told 2>/dev/null)" = "$*" ] || echo "nodegate: $*" >/dev/console
	echo "$*" >$told
}

# full FILE: report that FILE could not be written.
full() { say "held: cannot write to ${1%/*}, is the disk full? tried again every 5 s: $(df -P "${1%/*}" 2>/dev/null | tail -n 1)"; }

@HOW@
case ${1:-} in
fetch)
	trap 'rm -f "${new:-}"' EXIT
	trap 'exit 1' INT TERM
	if ! right "$bin"; then
		[ ! -d "$bin" ] || { say "held: $bin is a directory, nodegate cannot be put there; remove it: rmdir $bin"; exit 1; }
		rm -f "$bin".fetch.* # left by a run that was killed
		mkdir -p "${bin%/*}" && new=$(mktemp "$bin.fetch.XXXXXX") || { say "held: cannot write to ${bin%/*}"; exit 1; }
		bring "$new" || exit 1
		chmod 0755 "$new" && settle "$new" && mv -f "$new" "$bin" || { say "held: cannot write to $bin"; exit 1; }
		say "fetched, and it is the one that was asked for"
	fi
	systemctl --no-block start @UNITS@
	exit 0
	;;
check)
	right "$bin" && exit 0
	echo "nodegate: held: $bin is not here yet, or not the one that was asked for; nodegate-fetch.service brings it" >&2
	exit 1
	;;
gate)
	# xargs removes quotes as systemd does: the units' ConditionKernelCommandLine= must agree.
	if xargs printf '%s\n' </proc/cmdline 2>/dev/null | grep -qxF nodegate=off; then
		off="nodegate=off on the kernel command line"
	fi
	[ ! -e @DISABLED@ ] || off=@DISABLED@
	if [ -n "${off:-}" ] && ! right "$bin"; then
		say "break-glass in force ($off): this node is NOT proven"
		exit 0
	fi
	sh "$0" check && exec "$bin" gate
	exit 1
	;;
esac
echo "usage: sh $0 fetch|check|gate" >&2
exit 2
