package kubelet_test

import (
	"maps"
	"path"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/verdict"
)

// TestHealthyUnitsElsewhere: units of other names and forms, in the way in which their projects publish them, are not accused.
func TestHealthyUnitsElsewhere(t *testing.T) {
	const etc, lib = "/etc/systemd/system/", "/usr/lib/systemd/system/"
	type tree = map[string]string
	for what, c := range map[string]struct {
		unit string // its file
		text string
		more tree
	}{
		"k3s": {etc + "k3s.service", "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nType=notify\n" +
			"EnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/sysconfig/%N\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\n" +
			"KillMode=process\nDelegate=yes\nUser=root\nTimeoutStartSec=0\nRestart=always\nRestartSec=5s\nExecStartPre=-/sbin/modprobe br_netfilter\n" +
			"ExecStartPre=-/sbin/modprobe overlay\nExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--disable' \\\n\t'traefik' \\\n\n" +
			"[Install]\nWantedBy=multi-user.target\n", tree{"/usr/local/bin/k3s": elf(amd64)}},
		"k3s agent": {etc + "k3s-agent.service", "[Service]\nType=exec\nEnvironmentFile=-/etc/systemd/system/k3s-agent.service.env\n" +
			"ExecStartPre=/bin/sh -xc '! /usr/bin/systemctl is-enabled --quiet nm-cloud-setup.service 2>/dev/null'\n" +
			"ExecStart=/usr/local/bin/k3s \\\n    agent \\\n\nRestart=always\n", tree{"/usr/local/bin/k3s": elf(amd64)}},
		"rke2": {"/usr/local/lib/systemd/system/rke2-agent.service", "[Unit]\nConflicts=rke2-server.service\n[Service]\nType=notify\n" +
			"EnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/usr/local/lib/systemd/system/%N.env\nTimeoutStartSec=0\nRestart=always\n" +
			"ExecStartPre=-/sbin/modprobe br_netfilter\nExecStart=/usr/local/bin/rke2 agent\n" +
			"ExecStopPost=-/bin/sh -c \"systemd-cgls /system.slice/%n | grep -Eo '[0-9]+ (containerd|kubelet)' | awk '{print $1}' | xargs -r kill\"\n",
			tree{"/usr/local/bin/rke2": elf(amd64)}},
		"k0s": {etc + "k0sworker.service", "[Unit]\nConditionFileIsExecutable=/usr/local/bin/k0s\nAfter=network-online.target\n[Service]\n" +
			"StartLimitInterval=5\nStartLimitBurst=10\nExecStart=/usr/local/bin/k0s worker --token-file=/etc/k0s/k0stoken\n" +
			"RestartSec=10\nDelegate=yes\nKillMode=process\nLimitCORE=infinity\nTasksMax=infinity\nRestart=always\n", tree{"/usr/local/bin/k0s": elf(amd64)}},
		"MicroK8s": {etc + "snap.microk8s.daemon-kubelite.service", "[Unit]\nRequires=snap-microk8s-7229.mount\nWants=network.target\n" +
			"After=snap-microk8s-7229.mount network.target snapd.apparmor.service\nX-Snappy=yes\n[Service]\nEnvironmentFile=-/etc/environment\n" +
			"ExecStart=/usr/bin/snap run microk8s.daemon-kubelite\nSyslogIdentifier=microk8s.daemon-kubelite\nRestart=always\n" +
			"WorkingDirectory=/var/snap/microk8s/7229\nTimeoutStopSec=30\nType=simple\n",
			tree{etc + "snap-microk8s-7229.mount": "[Mount]\nWhat=/x\n", "/usr/bin/snap": elf(amd64), "/var/snap/microk8s/7229/a": "b"}},
		"Bottlerocket": {lib + "kubelet.service", "[Unit]\nConditionPathExists=!/etc/kubernetes/off\nAfter=containerd.service configured.target\n" +
			"Wants=configured.target\nBindsTo=containerd.service\n[Service]\nType=notify\nEnvironmentFile=/etc/network/proxy.env\n" +
			"EnvironmentFile=/etc/kubernetes/kubelet/env\nExecStartPre=/sbin/iptables -P FORWARD ACCEPT\n" +
			"ExecStart=/usr/bin/kubelet \\\n    --kubeconfig /etc/kubernetes/kubelet/kubeconfig \\\n    --config /etc/kubernetes/kubelet/config\nRestart=on-failure\n",
			tree{lib + "containerd.service": "[Service]\nExecStart=/bin/x\n", lib + "configured.target": "[Unit]\n", "/etc/network/proxy.env": "A=b\n"}},
		"minikube": {lib + "kubelet.service", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/var/lib/minikube/binaries/v1.34.0/kubelet\nRestart=always\nRestartSec=600ms\n",
			tree{etc + "kubelet.service.d/10-kubeadm.conf": "[Unit]\nWants=docker.socket\n\n[Service]\nExecStart=\n" +
				"ExecStart=/var/lib/minikube/binaries/v1.34.0/kubelet --config=/var/lib/kubelet/config.yaml --node-ip=192.168.49.2\n\n[Install]\n",
				"/var/lib/minikube/binaries/v1.34.0/kubelet": elf(amd64)}},
		"kind": {etc + "kubelet.service", "[Unit]\nConditionPathExists=/var/lib/kubelet/config.yaml\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n" +
			"StartLimitInterval=0\nRestartSec=1s\nCPUAccounting=true\nMemoryAccounting=true\nSlice=kubelet.slice\nKillMode=process\n",
			tree{etc + "kubelet.service.d/11-kind.conf": "[Service]\nExecStartPre=/bin/sh -euc \"if [ -f /sys/fs/cgroup/cgroup.controllers ]; then " +
				"/kind/bin/create-kubelet-cgroup-v2.sh; fi\"\nExecStartPre=/bin/sh -euc \"if [ ! -f /sys/fs/cgroup/cgroup.controllers ] && [ ! -d " +
				"/sys/fs/cgroup/systemd/kubelet ]; then mkdir -p /sys/fs/cgroup/systemd/kubelet; fi\"\n",
				"/kind/bin/create-kubelet-cgroup-v2.sh": "#!/bin/bash\nset -e\nmkdir -p /sys/fs/cgroup/kubelet\n", "/bin/bash": elf(amd64)}},
		"GKE": {etc + "kubelet.service", "[Unit]\nRequires=network-online.target\nAfter=network-online.target\n[Service]\nRestart=always\nRestartSec=10\n" +
			"EnvironmentFile=/etc/default/kubelet\nExecStart=/home/kubernetes/bin/kubelet $KUBELET_OPTS\n",
			tree{"/etc/default/kubelet": "KUBELET_OPTS=\"--v=2\"\n", "/home/kubernetes/bin/kubelet": elf(amd64), lib + "network-online.target": "[Unit]\n"}},
		"quotes over several lines": {lib + "kubelet.service", "[Service]\nRestart=always\nEnvironment=\"A=--kubeconfig=/etc/kubernetes/kubelet.conf \\\n" +
			"  --node-labels=a=b\" \\\n  'B=--v 2'\n# a comment\n; another one\nExecStart=/usr/bin/kubelet $A \\\n# inside\n  $B\n", nil},
		"a configuration directory": {lib + "kubelet.service", "[Service]\nRestart=always\nConfigurationDirectory=kubelet\nWorkingDirectory=/etc/kubelet\n" +
			"ExecStart=/usr/bin/kubelet --config-dir=${CONFIGURATION_DIRECTORY}\n", nil},
		"standalone, with static Pods": {lib + "kubelet.service", "[Service]\nRestart=always\nExecStart=/usr/bin/kubelet --pod-manifest-path=/etc/manifests --cgroups-per-qos=false " +
			"--enforce-node-allocatable=\n", tree{"/etc/manifests/x.yaml": "kind: Pod\n"}},
		"an instance": {lib + "kubelet@.service", "[Service]\nRestart=always\nEnvironmentFile=-/etc/kubelet/%i.env\nWorkingDirectory=-/srv/%i\n" +
			"ExecStart=/usr/bin/kubelet --root-dir=/var/lib/kubelet-%i\n", nil},
		"a shell between": {lib + "kubelet.service", "[Service]\nRestart=always\nExecStartPre=-/usr/bin/test -e /nowhere\nExecStart=/bin/bash -c 'exec " +
			"/usr/bin/kubelet --v=$${V:-2}'\n", tree{"/bin/bash": elf(amd64)}},
		"a directory of tmpfiles.d": {lib + "kubelet.service", "[Service]\nRestart=always\nWorkingDirectory=/srv/kube\nExecStart=/usr/bin/kubelet\n",
			tree{"/usr/lib/tmpfiles.d/kube.conf": "d /srv/kube 0755 root root -\n"}},
	} {
		name := path.Base(c.unit)
		if name == "kubelet@.service" {
			name = "kubelet@blue.service"
		}
		changes := tree{
			unitFile: "", dropInD: "", gateDropIn: "", wantsLink: "", c.unit: c.text,
			etc + name + ".d/10-nodegate.conf":      "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStartPre=+/usr/local/bin/nodegate gate\nRestart=always\n",
			etc + "multi-user.target.wants/" + name: "-> " + c.unit,
			"/bin/sh":                               elf(amd64),
		}
		maps.Copy(changes, c.more)
		r := checkstest.On(t.Context(), t, checkstest.Tree(t, kubeadmTree(changes)), checks.Image, "kubelet.unit", `gate { unit = "`+name+`" }`)
		if r.Verdict != verdict.Pass && (r.Verdict != verdict.Warn || what != "Bottlerocket" && what != "a directory of tmpfiles.d") {
			t.Errorf("%s: %s", what, checkstest.Text(r))
		}
	}
}
