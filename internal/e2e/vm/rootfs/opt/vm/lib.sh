# What the boot scripts of the scenarios share. Sourced by sh -eu in the guest.

# die MESSAGE: the scenario fails, and says why.
die() {
	echo "FAILED at $(uptime_s) s: $*" >&2
	exit 1
}

# uptime_s: the guest's clock, seconds since boot.
uptime_s() { cut -d' ' -f1 /proc/uptime; }

# centis: the same in hundredths, for arithmetic.
centis() { cut -d' ' -f1 /proc/uptime | tr -d .; }

# within SECONDS COMMAND...: COMMAND holds before the guest's clock has gone on by SECONDS. Says how long it took. A minute or more is
# only there to come to an end: where the host's processors are taken away, an emulated machine needs three times as long.
within() {
	limit=$1 began=$(centis)
	[ "$limit" -lt 60 ] || limit=$((limit * 3))
	shift
	until "$@"; do
		[ $(($(centis) - began)) -lt $((limit * 100)) ] || die "not within $limit s: $*"
		sleep 0.1
	done
	echo "$(uptime_s): $* after $(($(centis) - began)) hundredths of a second"
}

# throughout SECONDS COMMAND...: COMMAND holds now and at every look for SECONDS.
throughout() {
	limit=$1 began=$(centis)
	shift
	while [ $(($(centis) - began)) -lt $((limit * 100)) ]; do
		"$@" || die "no longer after $(($(centis) - began)) hundredths of a second: $*"
		sleep 0.2
	done
	echo "$(uptime_s): $* throughout $limit s"
}

# not COMMAND...
not() { ! "$@"; }

# loaded MODULE: it is in /proc/modules.
loaded() { grep -q "^$1 " /proc/modules; }

# value KEY: what the kernel says; empty when it does not have the key. KEY is written with dots.
value() { cat "/proc/sys/$(printf %s "$1" | tr . /)" 2>/dev/null || :; }

# is KEY VALUE: the sysctl has the value.
is() { [ "$(value "$1")" = "$2" ]; }

# started N: the stand-in has started N times or more in this boot.
started() { [ -e "/run/vm/kubelet/$1/uptime" ]; }

# judged N: the stand-in has judged what it found at its Nth start.
judged() { [ -e "/run/vm/kubelet/$1/verdict" ]; }

# first_start: waits for the stand-in's first start of this boot, however slow the machine.
first_start() { within 120 started 1; }

# saw N: the stand-in's Nth start of this boot found the modules loaded and every sysctl of /opt/vm/sysctls right, and stayed.
saw() {
	accepted "$1"
	for module in br_netfilter overlay nf_conntrack; do
		grep -q "^$module " "/run/vm/kubelet/$1/modules" || die "start $1 of kubelet without $module: $(cut -d' ' -f1 "/run/vm/kubelet/$1/modules" | tr '\n' ' ')"
	done
	diff -u /opt/vm/sysctls "/run/vm/kubelet/$1/sysctls" >&2 || die "start $1 of kubelet with the wrong sysctls"
}

# accepted N: the stand-in stays after its Nth start: kubelet's own demands are met. Says nothing of the modules.
accepted() {
	within 120 judged "$1"
	[ "$(cat "/run/vm/kubelet/$1/verdict")" = runs ] || die "start $1 of kubelet: $(cat "/run/vm/kubelet/$1/verdict")"
}

# right_now: every sysctl of /opt/vm/sysctls is right at this moment.
right_now() { sysctl $(cut -d' ' -f1 /opt/vm/sysctls) 2>&1 | diff -u /opt/vm/sysctls - >&2; }

# held N: the stand-in's Nth start has not come, and systemd is still after it: at its ExecStartPre, between two tries,
# or with kubelet's start waiting in the queue for what it is ordered after.
held() {
	not started "$1" || return 1
	for _ in 1 2 3; do # a job may end between the two questions
		case $(systemctl show --property=ActiveState --value kubelet.service) in
		activating | deactivating) return 0 ;;
		esac
		systemctl list-jobs --no-legend | grep -q ' kubelet\.service ' && return 0
	done
	return 1
}

# told TEXT: the report says it, and so does the journal of this boot.
told() {
	grep -qF "$1" /run/nodegate/report.json || { echo "report.json is silent about $1" >&2; return 1; }
	journalctl -b --no-pager | grep -F nodegate | grep -qF "$1" || { echo "the journal is silent about $1" >&2; return 1; }
}

# settled: nothing is left in systemd's queue.
settled() { [ "$(systemctl list-jobs --no-legend | wc -l)" = 0 ]; }

# complain STAGE: the checks that fail or warn, and not because of another one. Of one that cannot tell, with a question mark.
complain() {
	nodegate check --stage "$1" >/root/report.txt || :
	echo $(sed -nE 's/^(fail|warn) +([^ ]+).*/\2/p; s/^unknown +([^ ]+).*/\1?/p' /root/report.txt | sort)
}

# follow: the checks of that report that point at another one.
follow() { echo $(sed -nE 's/^ +([^ ]+) +because of [^ ]+$/\1/p' /root/report.txt | sort); }

# expect WHAT WANT GOT
expect() {
	[ "$2" = "$3" ] && return
	mistakes=$((mistakes + 1)) # all are told, not the first alone
	{ echo "WRONG: $1: want '$2', got '$3'" && cat /root/report.txt; } >&2
}

# broken STAGES CHECKS FOLLOWERS BREAK MEND: after BREAK these checks say so, and the followers because of them, and no other.
# STAGES is run, or both for boot and run; at boot what only warns and can only look is left out, so it has no followers here.
broken() {
	sh -euc "$4" >&2 || die "cannot break it: $4"
	if [ "$1" = both ]; then
		expect "stage boot: $4" "$2" "$(complain boot)"
	fi
	expect "stage run: $4" "$2" "$(complain run)"
	expect "because: $4" "$3" "$(follow)"
	echo "$(uptime_s): $2: $(grep -E "^(fail|warn) +${2%% *} " /root/report.txt || :)"
	sh -euc "$5" >&2 || die "cannot mend it: $5"
}

# flipped KEY BAD GOOD FOLLOWERS
flipped() { broken both "sysctl.$1" "$4" "sysctl -qw $1=$2" "sysctl -qw $1=$3"; }

# no_mistakes: every expect was right.
mistakes=0
no_mistakes() { [ "$mistakes" = 0 ] || die "$mistakes answers are wrong"; }
