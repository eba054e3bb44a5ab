# Functions that the scripts of all scenarios share, on the nodes and beside the control plane. Sourced by sh -eu.

# die MESSAGE: fail the scenario with a message.
die() {
	echo "FAILED: $*" >&2
	exit 1
}

# not COMMAND...
not() { ! "$@"; }

# within SECONDS COMMAND...: wait until COMMAND succeeds, at most SECONDS, and print how long it took. Limits of a minute or more only
# bound the wait, so they are doubled: on a busy host an emulated machine needs twice as long.
within() {
	limit=$1 began=$(cut -d. -f1 /proc/uptime)
	[ "$limit" -lt 60 ] || limit=$((limit * 2))
	shift
	until "$@"; do
		[ $(($(cut -d. -f1 /proc/uptime) - began)) -lt "$limit" ] || die "not true within $limit s: $*"
		sleep 1
	done
	echo "$* after $(($(cut -d. -f1 /proc/uptime) - began)) s"
}

# keep NAME COMMAND...: store the output of COMMAND until the machine stops.
keep() {
	kept=$1
	shift
	"$@" >"/run/kept.$kept"
	[ -s "/run/kept.$kept" ] || die "no output of: $*"
}

# unchanged NAME COMMAND...: the output of COMMAND equals the stored one.
unchanged() {
	kept=$1
	shift
	[ "$("$@")" = "$(cat "/run/kept.$kept")" ]
}

# --- on a node

# loaded MODULE: the module is in /proc/modules.
loaded() { grep -q "^$1 " /proc/modules; }

# kubelet_runs: kubelet's program runs; the gate has passed.
kubelet_runs() { [ "$(systemctl show -P SubState kubelet.service)" = running ]; }

# held: the gate holds kubelet.
held() {
	[ "$(systemctl show -P SubState kubelet.service)" = start-pre ] &&
		journalctl -b -u kubelet.service --no-pager | grep -q 'nodegate: held'
}

# kubelet_process: identify kubelet's process; the output changes if kubelet restarts.
kubelet_process() { systemctl show -p MainPID,ExecMainStartTimestampMonotonic,NRestarts kubelet.service; }

# kubelet_began: print the time from the kernel's start to kubelet's start, and the time of the gate, if any.
kubelet_began() {
	for at in ExecMainStart InactiveExit; do systemctl show -P ${at}TimestampMonotonic kubelet.service; done | xargs |
		awk '{ gate = $1 - $2; print "kubelet began " $1 / 1e6 " s after the kernel; its gate took " (gate < 0 ? 0 : gate / 1e6) " s" }'
}

# forget_cluster: stop kubelet and remove its credentials, so that it joins again at its next start.
forget_cluster() {
	systemctl stop kubelet.service
	rm -rf /var/lib/kubelet/kubeconfig /var/lib/kubelet/pki
}

# proven BINARY: the gate of that binary has passed, and kubelet has started once.
proven() {
	systemctl show -P ExecStartPre kubelet.service | grep -q "path=$1 ; argv\[\]=$1 gate ;.*code=exited ; status=0" &&
		kubelet_runs && [ "$(systemctl show -P NRestarts kubelet.service)" = 0 ] &&
		tr -d ' \n' </run/nodegate/report.json | grep -q '"stage":"boot","verdict":"pass"'
}

# watched_by BINARY VERSION: nodegate-watch runs the current file BINARY, which has that version.
watched_by() {
	pid=$(systemctl show -P MainPID nodegate-watch.service)
	[ "$(readlink "/proc/$pid/exe")" = "$1" ] && "$1" version | grep -q "^nodegate $2 "
}

# named: print the checks that hold kubelet now.
named() { /opt/nodegate check --stage boot | awk '$1 == "fail" || $1 == "unknown" { print $2 }' | sort | xargs; }

# named_only CHECKS: exactly these checks hold kubelet.
named_only() { [ "$(named)" = "$*" ]; }

# exits WORDS: with break-glass on, kubelet exits again and again with WORDS in its log. Afterwards it is held again.
exits() {
	before=$(systemctl show -P NRestarts kubelet.service)
	touch /etc/nodegate/disabled
	within 240 sh -c "journalctl -b --no-pager -o cat -u kubelet.service | grep -q -e '$1'"
	within 240 sh -c "[ \$(systemctl show -P NRestarts kubelet.service) -ge $((before + 3)) ]"
	rm /etc/nodegate/disabled
	within 240 held
}

# audit_says VERDICT: watch's audit of kube-proxy has this verdict.
audit_says() { /opt/nodegate status --format json | tr -d ' \n' | grep -q "\"kubeproxy.audit\",\"verdict\":\"$1\""; }

# audit_passes: an audit passes now; its output is in /run/audit.txt.
audit_passes() { /opt/nodegate audit --kubeconfig /etc/kubernetes/proxy.kubeconfig --node node1 --timeout 4m >/run/audit.txt 2>&1; }

# audit_accuses SERVICE WORDS: an audit fails now with a finding about SERVICE that contains WORDS.
audit_accuses() {
	code=0
	audit_passes || code=$?
	cat /run/audit.txt
	[ $code = 1 ] || die "audit exits with $code"
	grep -F -A 1 "($1)" /run/audit.txt | grep -qF "$2" || die "no finding about $1 contains: $2"
}

# --- on a node with flannel

# made: flanneld's link exists.
made() { [ -e /sys/class/net/flannel.1 ]; }

# offload: print the link's tx-checksum-ip-generic, on or off.
offload() { ethtool -k flannel.1 | sed -n 's/^\ttx-checksum-ip-generic: //p'; }

# sent [WORDS]: count the IPv4 packets in the kernel's trace that left through flannel.1, with WORDS in their line.
sent() { grep -c "net_dev_start_xmit: dev=flannel.1 .*${1:-}" /sys/kernel/tracing/trace || :; }

# names CHECK VERDICT [WORDS]: CHECK has this verdict and its line contains WORDS. POLICY selects another policy file.
names() {
	said=$(/opt/nodegate check ${POLICY:+--policy "$POLICY"} --stage run -v "$1") || :
	echo "$said" | grep -q "^$2  *$1 .*${3:-}" || die "$1: want $2 ${3:-}, got: $said"
}

# --- beside the control plane

# across SECONDS: the Pods client and far on two nodes reach each other over the overlay, directly and through their Services.
across() {
	within "$1" directly
	within 30 through
	within 60 back
}
directly() { asks client "$(address far):8080" far; }
through() { asks client "$(cluster_ip far):80" far; }
back() { asks far "$(cluster_ip client):80" client; }

# pods_by NODE: route to the Pods of a node with flannel through that node.
pods_by() {
	range=$(kubectl get node "$1" -o 'jsonpath={.spec.podCIDR}')
	ip route replace "$range" via "$(kubectl get node "$1" -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}')"
}

# joined NODE: the API knows the node.
joined() { kubectl get node "$1" >/dev/null 2>&1; }

# ready NODE: the Node is Ready.
ready() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null)" = True ]; }

# boot_of NODE: print the boot ID that its kubelet reported last.
boot_of() { kubectl get node "$1" -o 'jsonpath={.status.nodeInfo.bootID}'; }

# ready_again NODE: the Node is Ready after a boot other than the stored one.
ready_again() { ready "$1" && not unchanged boot boot_of "$1"; }

# since_power_on NODE: print the time since its machine was powered on.
since_power_on() { eval "echo \$$1_on $(date +%s%3N)" | awk '{ printf "%.1f s", ($2 - $1) / 1000 }'; }

# container POD: print the restart count, ID and start time of its container.
container() {
	kubectl get pod "$1" -o 'jsonpath={range .status.containerStatuses[*]}{.restartCount} {.containerID} {.state.running.startedAt}{end}'
}

# restarted POD TIMES: the Pod runs, after this many restarts.
restarted() { running "$1" && [ "$(container "$1" | cut -d' ' -f1)" = "$2" ]; }

# untouched NODE POD: kubelet renews its lease, the Node is Ready, and the Pod's container is the stored one.
untouched() {
	keep lease lease "$1"
	within 60 not unchanged lease lease "$1"
	ready "$1" || die "$1 is not Ready"
	running "$2" || die "$2 does not run"
	unchanged "$2" container "$2" || die "container of $2: was $(cat "/run/kept.$2"), is $(container "$2")"
}
lease() { kubectl get lease -n kube-node-lease "$1" -o 'jsonpath={.spec.renewTime}'; }

# run POD NODE [LABEL]: create a Pod with the test's program on that node. No taint evicts it: an emulated machine on a busy host may need
# more than five minutes for a restart.
run() {
	kubectl apply -f - <<-E
	{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$1", "labels": {"app": "${3:-$1}"}},
	 "spec": {"nodeName": "$2", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
	  "containers": [{"name": "pod", "image": "localhost/pod:test", "imagePullPolicy": "Never", "ports": [{"containerPort": 8080}]}]}}
	E
}

# running POD: the Pod is Ready.
running() { [ "$(kubectl get pod "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null)" = True ]; }

# service NAME: create a Service for the Pods with that label.
service() {
	kubectl apply -f - <<-E
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "$1"},
	 "spec": {"selector": {"app": "$1"}, "ports": [{"port": 80, "targetPort": 8080}]}}
	E
}

# address POD, cluster_ip SERVICE
address() { kubectl get pod "$1" -o 'jsonpath={.status.podIP}'; }
cluster_ip() { kubectl get service "$1" -o 'jsonpath={.spec.clusterIP}'; }

# says POD ADDRESS:PORT: print the answer that the Pod gets from there.
says() { kubectl --request-timeout=15s get --raw "/api/v1/namespaces/default/pods/$1:8080/proxy/get?to=$2" 2>&1; }

# asks POD ADDRESS:PORT NAME: the answer that the Pod gets from there is NAME.
asks() { [ "$(says "$1" "$2")" = "$3" ]; }

# silent POD ADDRESS:PORT: the Pod's connection times out, with neither answer nor refusal.
silent() { says "$1" "$2" | grep -q 'deadline exceeded'; }
