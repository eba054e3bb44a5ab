# Functions that the boot scripts of all scenarios share. Sourced by sh -eu in the guest.

# die MESSAGE: fail the scenario with a message.
die() {
	echo "FAILED at $(uptime_s) s: $*" >&2
	exit 1
}

# uptime_s: the guest's clock, seconds since boot.
uptime_s() { cut -d' ' -f1 /proc/uptime; }

# centis: the same in hundredths of a second, for arithmetic.
centis() { cut -d' ' -f1 /proc/uptime | tr -d .; }

# within SECONDS COMMAND...: wait until COMMAND succeeds, at most SECONDS by the guest's clock, and print how long it took. On a busy host
# that clock is slow (machine.go).
within() {
	limit=$1 began=$(centis)
	shift
	until "$@"; do
		[ $(($(centis) - began)) -lt $((limit * 100)) ] || die "not true within $limit s: $*"
		sleep 0.1
	done
	echo "$(uptime_s): $* after $(($(centis) - began)) hundredths of a second"
}

# throughout SECONDS COMMAND...: COMMAND must succeed in every try for SECONDS.
throughout() {
	limit=$1 began=$(centis)
	shift
	while [ $(($(centis) - began)) -lt $((limit * 100)) ]; do
		"$@" || die "no longer true after $(($(centis) - began)) hundredths of a second: $*"
		sleep 0.2
	done
	echo "$(uptime_s): $* throughout $limit s"
}

# not COMMAND...
not() { ! "$@"; }

# loaded MODULE: the module is in /proc/modules.
loaded() { grep -q "^$1 " /proc/modules; }

# value KEY: the sysctl's value in the kernel; empty if the key is missing. KEY is written with dots.
value() { cat "/proc/sys/$(printf %s "$1" | tr . /)" 2>/dev/null || :; }

# is KEY VALUE: the sysctl has the value.
is() { [ "$(value "$1")" = "$2" ]; }

# started N: the stand-in has started at least N times in this boot.
started() { [ -e "/run/vm/kubelet/$1/uptime" ]; }

# judged N: the stand-in has written the verdict of its Nth start.
judged() { [ -e "/run/vm/kubelet/$1/verdict" ]; }

# first_start: wait for the stand-in's first start of this boot, even on a slow machine.
first_start() { within 120 started 1; }

# saw N: at the stand-in's Nth start of this boot the modules were loaded and every sysctl of /opt/vm/sysctls was right, and it kept running.
saw() {
	accepted "$1"
	for module in br_netfilter overlay nf_conntrack; do
		grep -q "^$module " "/run/vm/kubelet/$1/modules" || die "start $1 of kubelet: without the module $module: $(cut -d' ' -f1 "/run/vm/kubelet/$1/modules" | tr '\n' ' ')"
	done
	diff -u /opt/vm/sysctls "/run/vm/kubelet/$1/sysctls" >&2 || die "start $1 of kubelet: wrong sysctls"
}

# accepted N: the stand-in kept running after its Nth start: kubelet's own demands are met. Does not check the modules.
accepted() {
	within 120 judged "$1"
	[ "$(cat "/run/vm/kubelet/$1/verdict")" = runs ] || die "start $1 of kubelet: $(cat "/run/vm/kubelet/$1/verdict")"
}

# right_now: every sysctl of /opt/vm/sysctls is right now.
right_now() { sysctl $(cut -d' ' -f1 /opt/vm/sysctls) 2>&1 | diff -u /opt/vm/sysctls - >&2; }

# held N: the stand-in has not started N times, but systemd is still trying: it runs ExecStartPre, waits between two tries, or has
# kubelet's start queued behind other units.
held() {
	not started "$1" || return 1
	for _ in 1 2 3; do # a job may end between the two queries
		case $(systemctl show --property=ActiveState --value kubelet.service) in
		activating | deactivating) return 0 ;;
		esac
		systemctl list-jobs --no-legend | grep -q ' kubelet\.service ' && return 0
	done
	return 1
}

# reported TEXT: both the report and this boot's journal contain the text.
reported() {
	grep -qF "$1" /run/nodegate/report.json || { echo "report.json does not contain $1" >&2; return 1; }
	journalctl -b --no-pager | grep -F nodegate | grep -qF "$1" || { echo "the journal does not contain $1" >&2; return 1; }
}

# settled: systemd's job queue is empty.
settled() { [ "$(systemctl list-jobs --no-legend | wc -l)" = 0 ]; }

# all_active UNIT...: every unit is active.
all_active() { for unit; do systemctl is-active --quiet "$unit" || return 1; done; }

# complain STAGE: print the checks that fail or warn for a reason of their own. Unknown ones get a question mark.
complain() {
	nodegate check --stage "$1" >/root/report.txt || :
	echo $(sed -nE 's/^(fail|warn) +([^ ]+).*/\2/p; s/^unknown +([^ ]+).*/\1?/p' /root/report.txt | sort)
}

# follow: print the checks of that report that fail because of another one.
follow() { echo $(sed -nE 's/^ +([^ ]+) +because of [^ ]+$/\1/p' /root/report.txt | sort); }

# expect WHAT WANT GOT
expect() {
	[ "$2" = "$3" ] && return
	mistakes=$((mistakes + 1)) # report all mistakes, not only the first
	{ echo "WRONG: $1: want '$2', got '$3'" && cat /root/report.txt; } >&2
}

# broken STAGES CHECKS FOLLOWERS BREAK MEND: after BREAK exactly these checks must fail, and exactly the followers because of them. MEND is a
# script, or "remedy" for the commands in the first check's remedy. STAGES is run, or both for boot and run. Stage boot leaves out checks
# that only warn and cannot apply, so it has no followers.
broken() {
	sh -euc "$4" >&2 || die "cannot break it: $4"
	if [ "$1" = both ]; then
		expect "stage boot: $4" "$2" "$(complain boot)"
	fi
	expect "stage run: $4" "$2" "$(complain run)"
	expect "because: $4" "$3" "$(follow)"
	echo "$(uptime_s): $2: $(grep -E "^(fail|warn) +${2%% *} " /root/report.txt || :)"
	mend=$5
	[ "$mend" != remedy ] || mend=$(remedy "${2%% *}")
	sh -euc "$mend" >&2 || die "cannot mend it: $mend"
}

# remedy CHECK: print the commands of the check's remedy in the report, other than nodegate's own. The next call of broken shows that they
# mended the fault and broke nothing else.
remedy() {
	grep -A9 -E "^(fail|warn) +$1 " /root/report.txt | sed -n 's/^ *do  *//p' | head -n 1 | grep -o '`[^`]*`' | tr -d '`' | grep -v '^nodegate ' ||
		die "$1: no command in the remedy"
}

# flipped KEY BAD GOOD FOLLOWERS
flipped() { broken both "sysctl.$1" "$4" "sysctl -qw $1=$2" "sysctl -qw $1=$3"; }

# no_mistakes: all calls of expect succeeded.
mistakes=0
no_mistakes() { [ "$mistakes" = 0 ] || die "$mistakes expectations failed"; }

# without_program N: without the program that the gate runs, kubelet's start N is held by name, and each of the two switches opens it. The
# kernel command line of a running machine cannot change, so a file with one more word covers it.
without_program() {
	systemctl stop kubelet
	mv /usr/local/bin/nodegate /root/
	systemctl start --no-block kubelet
	missing() { journalctl -b --no-pager | grep -qF "kubelet.service held: /usr/local/bin/nodegate is missing"; }
	within 60 missing
	held "$1" || die "kubelet started without a gate"
	touch /etc/nodegate/disabled
	within 60 started "$1"
	systemctl stop kubelet
	rm /etc/nodegate/disabled
	sed 's/$/ nodegate=off/' /proc/cmdline >/run/cmdline
	mount --bind /run/cmdline /proc/cmdline
	systemctl start --no-block kubelet
	within 60 started $(($1 + 1))
	umount /proc/cmdline
	mv /root/nodegate /usr/local/bin/
}
