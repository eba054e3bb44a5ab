# What the scripts of the scenarios share, on the nodes and beside the control plane. Sourced by sh -eu.

# die MESSAGE: the scenario fails, and says why.
die() {
	echo "FAILED: $*" >&2
	exit 1
}

# not COMMAND...
not() { ! "$@"; }

# within SECONDS COMMAND...: COMMAND holds before SECONDS have gone. Says how long it took. A minute or more is only there to come to an
# end: where the host's processors are taken away, an emulated machine needs twice as long.
within() {
	limit=$1 began=$(cut -d. -f1 /proc/uptime)
	[ "$limit" -lt 60 ] || limit=$((limit * 2))
	shift
	until "$@"; do
		[ $(($(cut -d. -f1 /proc/uptime) - began)) -lt "$limit" ] || die "not within $limit s: $*"
		sleep 1
	done
	echo "$* after $(($(cut -d. -f1 /proc/uptime) - began)) s"
}

# keep NAME COMMAND...: what it says now is kept, until the machine stops.
keep() {
	kept=$1
	shift
	"$@" >"/run/kept.$kept"
	[ -s "/run/kept.$kept" ] || die "nothing from: $*"
}

# unchanged NAME COMMAND...: it says what was kept.
unchanged() {
	kept=$1
	shift
	[ "$("$@")" = "$(cat "/run/kept.$kept")" ]
}

# --- on a node

# loaded MODULE: it is in /proc/modules.
loaded() { grep -q "^$1 " /proc/modules; }

# kubelet_runs: its program runs; the gate is behind it.
kubelet_runs() { [ "$(systemctl show -P SubState kubelet.service)" = running ]; }

# held: kubelet is in the gate.
held() {
	[ "$(systemctl show -P SubState kubelet.service)" = start-pre ] &&
		journalctl -b -u kubelet.service --no-pager | grep -q 'nodegate: held'
}

# kubelet_process: which process it is; another one where kubelet was restarted.
kubelet_process() { systemctl show -p MainPID,ExecMainStartTimestampMonotonic,NRestarts kubelet.service; }

# kubelet_began: when, on the clock that begins with the kernel, and how much of it is its gate, where it has one.
kubelet_began() {
	for at in ExecMainStart InactiveExit; do systemctl show -P ${at}TimestampMonotonic kubelet.service; done | xargs |
		awk '{ gate = $1 - $2; print "kubelet began " $1 / 1e6 " s after the kernel; its gate took " (gate < 0 ? 0 : gate / 1e6) " s" }'
}

# forget_cluster: kubelet stops, and joins again at its next start.
forget_cluster() {
	systemctl stop kubelet.service
	rm -rf /var/lib/kubelet/kubeconfig /var/lib/kubelet/pki
}

# proven BINARY: that binary's gate has passed, and let kubelet begin once.
proven() {
	systemctl show -P ExecStartPre kubelet.service | grep -q "path=$1 ; argv\[\]=$1 gate ;.*code=exited ; status=0" &&
		kubelet_runs && [ "$(systemctl show -P NRestarts kubelet.service)" = 0 ] &&
		tr -d ' \n' </run/nodegate/report.json | grep -q '"stage":"boot","verdict":"pass"'
}

# watched_by BINARY VERSION: nodegate-watch runs that file as it is now, and it is of that version.
watched_by() {
	pid=$(systemctl show -P MainPID nodegate-watch.service)
	[ "$(readlink "/proc/$pid/exe")" = "$1" ] && "$1" version | grep -q "^nodegate $2 "
}

# named: the checks that hold kubelet now.
named() { /opt/nodegate check --stage boot | awk '$1 == "fail" || $1 == "unknown" { print $2 }' | sort | xargs; }

# named_only CHECKS: those, and no others.
named_only() { [ "$(named)" = "$*" ]; }

# exits WORDS: behind a gate that is open kubelet exits with these words, and exits again. It is held afterwards.
exits() {
	before=$(systemctl show -P NRestarts kubelet.service)
	touch /etc/nodegate/disabled
	within 240 sh -c "journalctl -b --no-pager -o cat -u kubelet.service | grep -q -e '$1'"
	within 240 sh -c "[ \$(systemctl show -P NRestarts kubelet.service) -ge $((before + 3)) ]"
	rm /etc/nodegate/disabled
	within 240 held
}

# audit_says VERDICT: watch's audit of kube-proxy says so.
audit_says() { /opt/nodegate status --format json | tr -d ' \n' | grep -q "\"kubeproxy.audit\",\"verdict\":\"$1\""; }

# audit_passes: an audit made now does; /run/audit.txt has it.
audit_passes() { /opt/nodegate audit --kubeconfig /etc/kubernetes/proxy.kubeconfig --node node1 --timeout 4m >/run/audit.txt 2>&1; }

# audit_accuses SERVICE WORDS: an audit made now finds that, and fails.
audit_accuses() {
	code=0
	audit_passes || code=$?
	cat /run/audit.txt
	[ $code = 1 ] || die "an audit leaves with $code"
	grep -F -A 1 "($1)" /run/audit.txt | grep -qF "$2" || die "no finding about $1 says: $2"
}

# --- on a node with flannel

# made: flanneld's link is there.
made() { [ -e /sys/class/net/flannel.1 ]; }

# offload: what its tx-checksum-ip-generic is, on or off.
offload() { ethtool -k flannel.1 | sed -n 's/^\ttx-checksum-ip-generic: //p'; }

# sent [WORDS]: how many IPv4 packets the kernel's trace has that left by flannel.1; with those WORDS in their line.
sent() { grep -c "net_dev_start_xmit: dev=flannel.1 .*${1:-}" /sys/kernel/tracing/trace || :; }

# names CHECK VERDICT [WORDS]: nodegate, by its policy or by the one in POLICY, says so of this check, in these words.
names() {
	said=$(/opt/nodegate check ${POLICY:+--policy "$POLICY"} --stage run -v "$1") || :
	echo "$said" | grep -q "^$2  *$1 .*${3:-}" || die "of $1 is wanted $2 ${3:-}, nodegate says: $said"
}

# --- beside the control plane

# across SECONDS: the Pods client and far, of two nodes, reach each other over the overlay, directly and through their Services.
across() {
	within "$1" directly
	within 30 through
	within 60 back
}
directly() { asks client "$(address far):8080" far; }
through() { asks client "$(cluster_ip far):80" far; }
back() { asks far "$(cluster_ip client):80" client; }

# pods_by NODE: the Pods of a node with flannel are reached from here through it.
pods_by() {
	range=$(kubectl get node "$1" -o 'jsonpath={.spec.podCIDR}')
	ip route replace "$range" via "$(kubectl get node "$1" -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}')"
}

# joined NODE: the API knows it.
joined() { kubectl get node "$1" >/dev/null 2>&1; }

# ready NODE
ready() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null)" = True ]; }

# boot_of NODE: the boot that its kubelet told of last.
boot_of() { kubectl get node "$1" -o 'jsonpath={.status.nodeInfo.bootID}'; }

# ready_again NODE: since another boot than the kept one.
ready_again() { ready "$1" && not unchanged boot boot_of "$1"; }

# since_power_on NODE: seconds since its machine was switched on.
since_power_on() { eval "echo \$$1_on $(date +%s%3N)" | awk '{ printf "%.1f s", ($2 - $1) / 1000 }'; }

# container POD: how often it was restarted, which one it is, and since when.
container() {
	kubectl get pod "$1" -o 'jsonpath={range .status.containerStatuses[*]}{.restartCount} {.containerID} {.state.running.startedAt}{end}'
}

# restarted POD TIMES: it runs again.
restarted() { running "$1" && [ "$(container "$1" | cut -d' ' -f1)" = "$2" ]; }

# untouched NODE POD: kubelet renews its lease, the Node is Ready, and the Pod's container is the one that was kept.
untouched() {
	keep lease lease "$1"
	within 60 not unchanged lease lease "$1"
	ready "$1" || die "$1 is not Ready"
	running "$2" || die "$2 does not run"
	unchanged "$2" container "$2" || die "$2 was $(cat "/run/kept.$2"), is $(container "$2")"
}
lease() { kubectl get lease -n kube-node-lease "$1" -o 'jsonpath={.spec.renewTime}'; }

# run POD NODE [LABEL]: a Pod of the test's program on that node.
run() {
	kubectl apply -f - <<-E
	{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$1", "labels": {"app": "${3:-$1}"}},
	 "spec": {"nodeName": "$2", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
	  "containers": [{"name": "pod", "image": "localhost/pod:test", "imagePullPolicy": "Never", "ports": [{"containerPort": 8080}]}]}}
	E
}

# running POD
running() { [ "$(kubectl get pod "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null)" = True ]; }

# service NAME: leads to the Pods with that label.
service() {
	kubectl apply -f - <<-E
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "$1"},
	 "spec": {"selector": {"app": "$1"}, "ports": [{"port": 80, "targetPort": 8080}]}}
	E
}

# address POD, cluster_ip SERVICE
address() { kubectl get pod "$1" -o 'jsonpath={.status.podIP}'; }
cluster_ip() { kubectl get service "$1" -o 'jsonpath={.spec.clusterIP}'; }

# says POD ADDRESS:PORT: what that Pod gets from there.
says() { kubectl --request-timeout=15s get --raw "/api/v1/namespaces/default/pods/$1:8080/proxy/get?to=$2" 2>&1; }

# asks POD ADDRESS:PORT NAME: NAME answers that Pod there.
asks() { [ "$(says "$1" "$2")" = "$3" ]; }

# silent POD ADDRESS:PORT: the Pod's connection times out: no answer, no refusal.
silent() { says "$1" "$2" | grep -q 'deadline exceeded'; }
