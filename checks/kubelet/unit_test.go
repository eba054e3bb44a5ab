package kubelet_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/service"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// elf returns the beginning of an ELF program for a machine.
func elf(machine byte) string {
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00" + string(rune(machine)) + "\x00" + strings.Repeat("\x00", 44)
}

const (
	amd64, arm64 = 62, 40 // 40 is 32-bit ARM: 183 is no ASCII character
	dropInD      = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
	gateDropIn   = "/etc/systemd/system/kubelet.service.d/10-nodegate.conf"
	wantsLink    = "/etc/systemd/system/multi-user.target.wants/kubelet.service"
)

// kubeadmTree is the tree of a healthy node of kubeadm, with changes; "" removes a file.
func kubeadmTree(changes map[string]string) map[string]string {
	tree := map[string]string{
		unitFile: "[Unit]\nDescription=kubelet\nWants=network-online.target\nAfter=network-online.target\n\n[Service]\nExecStart=/usr/bin/kubelet\n" +
			"Restart=always\nStartLimitInterval=0\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n",
		dropInD: "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"\n" +
			"Environment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n" +
			"EnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS\n",
		"/etc/systemd/system/nodegate-apply.service": "[Unit]\nBefore=network-pre.target kubelet.service\n[Service]\nExecStart=/usr/local/bin/nodegate apply\n",
		gateDropIn:                 "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStartPre=+/usr/local/bin/nodegate gate\nRestart=always\n",
		wantsLink:                  "-> /usr/lib/systemd/system/kubelet.service",
		"/usr/bin/kubelet":         elf(amd64),
		"/usr/lib/systemd/systemd": elf(amd64),
		"/usr/lib/systemd/system/multi-user.target": "[Unit]\n",
		"/usr/lib/systemd/system/sysinit.target":    "[Unit]\n",
		"/etc/passwd":                               "root:x:0:0::/root:/bin/sh\n",
		"/etc/group":                                "root:x:0:\n",
	}
	maps.Copy(tree, changes)
	maps.DeleteFunc(tree, func(_, text string) bool { return text == "" })
	return tree
}

func unitResult(t *testing.T, tree map[string]string) checks.Result {
	t.Helper()
	return checkstest.On(t.Context(), t, checkstest.Tree(t, tree), checks.Image, "kubelet.unit", "")
}

func added(lines string) map[string]string {
	return map[string]string{"/etc/systemd/system/kubelet.service.d/20-x.conf": lines}
}

// loadFaults are the changes that systemd itself refuses when it loads the unit.
func loadFaults() map[string]map[string]string {
	base := kubeadmTree(nil)
	return map[string]map[string]string{
		"more than one ExecStart= setting":        {dropInD: strings.Replace(base[dropInD], "ExecStart=\n", "", 1)},
		"has no ExecStart=":                       added("[Service]\nExecStart=\n"),
		"nor an absolute path: usr/bin/kubelet":   added("[Service]\nExecStart=\nExecStart=usr/bin/kubelet --x\n"),
		"isn't allowed for Type=oneshot services": added("[Service]\nType=oneshot\n"),
		"Unbalanced quoting":                      added("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --x \"--y\n"),
		"kubelet.service is masked":               {"/etc/systemd/system/kubelet.service": "-> /dev/null"},
		"Unknown key '--kubeconfig'":              {dropInD: strings.Replace(base[dropInD], "bootstrap-kubelet.conf --kube", "bootstrap-kubelet.conf\n--kube", 1)},
	}
}

// TestUnit: each change to a healthy node is named at stage image.
func TestUnit(t *testing.T) {
	base := kubeadmTree(nil)
	cases := map[string]map[string]string{
		"/etc/passwd is not a directory":                       added("[Service]\nWorkingDirectory=/etc/passwd\n"),
		"/usr/bin/kubelet is missing":                          {"/usr/bin/kubelet": ""},
		"/usr/bin/kubelet is not executable":                   {"/usr/bin/kubelet": "text"},
		"/usr/bin/kubelet is for ARM":                          {"/usr/bin/kubelet": elf(arm64)},
		"/usr/bin/kubelet is a directory":                      {"/usr/bin/kubelet": "", "/usr/bin/kubelet/x": "y"},
		"/bin/none, which runs the script":                     {"/usr/bin/kubelet": "#!/bin/none\n"},
		"requires docker.service, which does not exist":        added("[Unit]\nRequires=docker.service\n"),
		"requires crio.service, which is masked":               {"/etc/systemd/system/kubelet.service.d/20-x.conf": "[Unit]\nBindsTo=crio.service\n", "/etc/systemd/system/crio.service": "-> /dev/null"},
		"ConditionPathExists=/usr/bin/nothing is not met":      added("[Unit]\nConditionPathExists=/usr/bin/nothing\n"),
		"ConditionPathExists=!/usr/bin/kubelet is not met":     added("[Unit]\nConditionPathExists=!/usr/bin/kubelet\n"),
		"is not started again after its start limit":           added("[Unit]\nStartLimitIntervalSec=10\n"),
		"a held kubelet.service is not started again":          added("[Service]\nRestart=no\n"),
		"ignoring: --kubeconfig=":                              {dropInD: strings.NewReplacer("Environment=\"KUBELET_KUBECONFIG_ARGS", "Environment=KUBELET_KUBECONFIG_ARGS", "kubelet.conf\"", "kubelet.conf").Replace(base[dropInD])},
		"starts a container in the background before the gate": added("[Service]\nExecStartPre=\nExecStartPre=/usr/bin/docker run -d x\nExecStartPre=+/usr/local/bin/nodegate gate\n"),
	}
	maps.Copy(cases, loadFaults())
	for want, changes := range cases {
		t.Run(want, func(t *testing.T) {
			r := unitResult(t, kubeadmTree(changes))
			if r.Verdict != verdict.Fail || !strings.Contains(r.State.Got, want) || r.State.Remedy == "" {
				t.Errorf("%s", checkstest.Text(r))
			}
		})
	}
}

// TestHealthyUnits: units in the form of the projects that publish them, in a tree with what their images have. A program at the first
// boot may make files or start the unit; an image does not show that, so it has a warning.
func TestHealthyUnits(t *testing.T) {
	provisioned := []string{"eks, started by nodeadm", "aks, started by its provisioning", "started by a script of another unit",
		"the program is downloaded", "typhoon, started by a path unit"}
	const wanted = "[Install]\nWantedBy=multi-user.target\n"
	own := func(unit string, more map[string]string) map[string]string {
		tree := kubeadmTree(map[string]string{dropInD: "", unitFile: unit + wanted, "/usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/bin/x\n"})
		maps.Copy(tree, more)
		maps.DeleteFunc(tree, func(_, text string) bool { return text == "" })
		return tree
	}
	for what, tree := range map[string]map[string]string{
		"kubeadm": kubeadmTree(nil),
		"eks, started by nodeadm": own("[Unit]\nAfter=containerd.service\nRequires=containerd.service\n[Service]\nEnvironmentFile=/etc/eks/kubelet/environment\n"+
			"ExecStartPre=/sbin/iptables -P FORWARD ACCEPT -w 5\nExecStart=/usr/bin/kubelet --config /etc/kubernetes/kubelet/config.json \\\n    $NODEADM_KUBELET_ARGS\nRestart=on-failure\n",
			map[string]string{wantsLink: "", "/usr/bin/nodeadm": elf(amd64)}),
		"aks, started by its provisioning": own("[Unit]\nConditionPathExists=/usr/local/bin/kubelet\nWants=containerd.service\n[Service]\nRestart=always\n"+
			"EnvironmentFile=/etc/default/kubelet\nExecStartPre=/bin/bash /opt/azure/containers/kubelet.sh\nExecStartPre=/bin/mkdir -p /var/lib/kubelet\n"+
			"ExecStart=/usr/local/bin/kubelet --v=2 $KUBELET_FLAGS\n",
			map[string]string{wantsLink: "", "/opt/azure/containers/provision.sh": "#!/bin/bash\n"}),
		"typhoon, started by a path unit": own("[Unit]\nRequires=containerd.service\n[Service]\nEnvironmentFile=/etc/kubernetes/kubelet.env\n"+
			"ExecStartPre=/bin/mkdir -p /etc/cni/net.d\nExecStartPre=-/usr/bin/podman rm -f kubelet\nExecStart=/usr/bin/podman run --name kubelet image kubelet\n",
			map[string]string{wantsLink: "", "/usr/lib/systemd/system/kubelet.path": "[Path]\nPathExists=/etc/kubernetes/kubeconfig\n", "/usr/bin/podman": elf(amd64)}),
		"openshift": own("[Unit]\nWants=rpc-statd.service\nRequires=containerd.service kubelet-dependencies.target\n[Service]\nType=notify\n"+
			"ExecStartPre=/bin/mkdir --parents /etc/kubernetes/manifests\nExecStartPre=-/usr/sbin/restorecon /usr/local/bin/kubenswrapper /usr/bin/kubensenter\n"+
			"Environment=\"KUBELET_LOG_LEVEL=2\"\nEnvironmentFile=/etc/os-release\nEnvironmentFile=-/etc/kubernetes/kubelet-workaround\n"+
			"ExecStart=/usr/local/bin/kubenswrapper /usr/bin/kubelet --config=/etc/kubernetes/kubelet.conf\n",
			map[string]string{"/etc/os-release": "ID=rhcos\n", "/usr/local/bin/kubenswrapper": "#!/bin/bash\n", "/bin/bash": elf(amd64),
				"/usr/lib/systemd/system/kubelet-dependencies.target": "[Unit]\n"}),
		"the hard way": own("[Unit]\nAfter=containerd.service\nRequires=containerd.service\n[Service]\nExecStart=/usr/local/bin/kubelet \\\n  --config=/var/lib/kubelet/kubelet-config.yaml\n"+
			"Restart=on-failure\nRestartSec=5\n", map[string]string{"/usr/local/bin/kubelet": elf(amd64)}),
		"kubespray": own("[Unit]\nAfter=containerd.service\nWants=containerd.service\n[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\n"+
			"ExecStart=/usr/local/bin/kubelet \\\n\t\t$KUBE_LOGTOSTDERR \\\n\t\t$KUBELET_API_SERVER\nRestart=always\n", map[string]string{"/usr/local/bin/kubelet": elf(amd64)}),
		"kops": own("[Unit]\nAfter=containerd.service\n[Service]\nEnvironmentFile=/etc/sysconfig/kubelet\nExecStart=/opt/kubernetes/bin/kubelet \"$DAEMON_ARGS\"\nUser=root\nRestart=always\n",
			map[string]string{"/etc/sysconfig/kubelet": "DAEMON_ARGS=\"--x\"\n", "/opt/kubernetes/bin/kubelet": elf(amd64)}),
		"started by a script of another unit": own("[Service]\nExecStart=/usr/bin/kubelet\n", map[string]string{wantsLink: "",
			"/etc/systemd/system/join.service": "[Service]\nExecStart=/opt/join.sh\n", "/opt/join.sh": "#!/bin/bash\nset -e\nsystemctl start kubelet\n"}),
		"a working directory of its own": own("[Service]\nStateDirectory=kube\nWorkingDirectory=/var/lib/kube\nExecStart=/usr/bin/kubelet\n", nil),
		"the program is downloaded":      own("[Service]\nExecStartPre=/usr/bin/curl -o /opt/eks/kubelet https://x\nExecStart=/opt/eks/kubelet\n", nil),
	} {
		want := verdict.Pass
		if slices.Contains(provisioned, what) {
			want = verdict.Warn
		}
		if strings.Contains(tree[unitFile], "EnvironmentFile=/etc/eks") || strings.Contains(tree[unitFile], "EnvironmentFile=/etc/kubernetes") {
			want = verdict.Skipped // what starts it writes that file first
		}
		if r := unitResult(t, tree); r.Verdict != want {
			t.Errorf("%s: %s", what, checkstest.Text(r))
		}
	}
}

// TestUnitDoubts: what a program may still do at the first boot, as kubeadm, nodeadm and cloud-init do, only warns.
func TestUnitDoubts(t *testing.T) {
	base := kubeadmTree(nil)
	for want, changes := range map[string]map[string]string{
		"/etc/default/kubelet is missing: systemd runs no command": {dropInD: strings.Replace(base[dropInD], "-/etc/default", "/etc/default", 1)},
		"/etc/env.d/*.env is missing":                              added("[Service]\nEnvironmentFile=/etc/env.d/*.env\n"),
		"/var/lib/none is missing":                                 added("[Service]\nWorkingDirectory=/var/lib/none\n"),
		"is enabled nowhere":                                       {wantsLink: ""},
	} {
		if r := unitResult(t, kubeadmTree(changes)); r.Verdict != verdict.Warn || !strings.Contains(r.State.Got, want) {
			t.Errorf("%s: %s", want, checkstest.Text(r))
		}
	}
}

// TestUnitPrepared: the first boot of a healthy image writes a file of variables, by a one-shot service before kubelet or by a program
// that then starts kubelet.
func TestUnitPrepared(t *testing.T) {
	const lib, file = "/usr/lib/systemd/system/", "EnvironmentFile=/run/metadata/node\n"
	once := map[string]string{lib + "metadata.service": "[Service]\nType=oneshot\nExecStart=/usr/bin/kubelet\n",
		lib + "ready.target": "[Unit]\nAfter=metadata.service\n"}
	for _, c := range []struct {
		lines   string
		changes map[string]string
		want    verdict.Verdict
	}{
		{"[Unit]\nAfter=metadata.service\n[Service]\n" + file, once, verdict.Skipped},
		{"[Unit]\nAfter=ready.target\n[Service]\n" + file, once, verdict.Skipped},
		{"[Service]\n" + file, once, verdict.Warn},
		{"[Unit]\nAfter=nodegate-apply.service\n[Service]\n" + file, map[string]string{
			lib + "nodegate-apply.service": once[lib+"metadata.service"]}, verdict.Warn},
		{"[Unit]\nAfter=metadata.service\n[Service]\nEnvironmentFile=/usr/lib/none\n", once, verdict.Fail},
		{"[Service]\n" + file, map[string]string{wantsLink: ""}, verdict.Skipped},
		{"[Service]\n" + file + "WorkingDirectory=/var/lib/none\n", map[string]string{wantsLink: ""}, verdict.Warn},
	} {
		tree := added(c.lines)
		maps.Copy(tree, c.changes)
		if r := unitResult(t, kubeadmTree(tree)); r.Verdict != c.want {
			t.Errorf("%q: %s", c.lines, checkstest.Text(r))
		}
	}
}

// TestUnitUpheld: Flatcar's Kubernetes extension has kubelet upheld by a drop-in of the target, and linked nowhere.
func TestUnitUpheld(t *testing.T) {
	upheld := map[string]string{wantsLink: "",
		"/usr/lib/systemd/system/multi-user.target.d/10-kubelet-service.conf": "[Unit]\nUpholds=kubelet.service\n"}
	if r := unitResult(t, kubeadmTree(upheld)); r.Verdict != verdict.Pass {
		t.Error(checkstest.Text(r))
	}
}

// TestUnitUnasked: where no systemd can be asked, the unit is neither right nor wrong.
func TestUnitUnasked(t *testing.T) {
	m := checkstest.Node(kubeadmTree(nil), nil)
	r := checkstest.On(t.Context(), t, m.Host(), checks.Boot, "kubelet.unit", "")
	if r.Verdict != verdict.Unknown || r.Metadata.Severity != policy.Warn || !strings.Contains(r.Err.Error(), "no systemd can be asked") {
		t.Errorf("severity %s: %s", r.Metadata.Severity, checkstest.Text(r))
	}
}

// TestUnitMaskedUntilReboot: a mask in /run, such as by systemd.mask= in the machine that bakes an image, hides no lasting fault.
func TestUnitMaskedUntilReboot(t *testing.T) {
	mask := map[string]string{"/run/systemd/generator.early/kubelet.service": "-> /dev/null"}
	if r := unitResult(t, kubeadmTree(mask)); r.Verdict != verdict.Warn || !strings.Contains(r.State.Got, "is masked until the next boot") {
		t.Error(checkstest.Text(r))
	}
	mask["/usr/bin/kubelet"] = ""
	if r := unitResult(t, kubeadmTree(mask)); r.Verdict != verdict.Fail || !strings.Contains(r.State.Got, "/usr/bin/kubelet is missing") {
		t.Error(checkstest.Text(r))
	}
}

// TestUnitLoaded: what the running systemd reports overrides the files, and a unit that is being started is not held for the next boot.
func TestUnitLoaded(t *testing.T) {
	node := func(changes map[string]string, active, file string, loaded host.Loaded) *hosttest.Machine {
		m := checkstest.WithUnit(checkstest.Node(kubeadmTree(changes), nil), "kubelet.service", active, file)
		loaded.Unit.State = loaded.State
		loaded.Unit.Programs, loaded.Unit.Running = []string{"/usr/bin/kubelet"}, true
		m.Loaded = map[string]host.Loaded{"kubelet.service": loaded}
		return m
	}
	const right = "\npass\nwant: a unit that systemd starts\ngot: a unit that systemd starts"
	starts := service.Answer{Starts: true, Started: true}
	fine := host.Loaded{State: "loaded", Unit: starts}
	checkstest.RunOne(t, "kubelet.unit", checks.Boot, []checkstest.Case{
		{What: "healthy", Node: node(nil, "activating", "enabled", fine), Want: right},
		{What: "runs, not enabled", Node: node(map[string]string{wantsLink: ""}, "active", "disabled", host.Loaded{State: "loaded"}), Want: `
warn
want: a unit that systemd starts
got: kubelet.service is enabled nowhere: systemd does not start it at boot
evidence: /usr/lib/systemd/system/kubelet.service: no unit of the boot starts it
remedy: run ` + "`systemctl enable kubelet.service`, unless a program starts it, as EKS' nodeadm, GKE's scripts and minikube do"},
		{What: "skipped", Node: node(nil, "inactive", "enabled", host.Loaded{State: "loaded", Unit: service.Answer{Starts: true,
			Conditions: []service.Condition{{Key: "ConditionVirtualization", Value: "!container"}}}}), Want: `
fail
want: a unit that systemd starts
got: ConditionVirtualization=!container is not met, so systemd skips the start of kubelet.service
evidence: /usr/lib/systemd/system/kubelet.service: ConditionVirtualization=!container
remedy: remove the condition, or make it true`},
		{What: "refused", Node: node(nil, "inactive", "enabled", host.Loaded{State: "bad-setting", Unit: service.Answer{Starts: true,
			Complaints: []string{"kubelet.service: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing."}}}), Want: `
fail
want: a unit that systemd starts
got: systemd says: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing.
evidence: kubelet.service: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing.
remedy: correct it, and see ` + "`systemd-analyze verify kubelet.service`"},
		{What: "changed since", Node: node(nil, "active", "enabled", host.Loaded{State: "loaded", Changed: true, Unit: starts}), Want: `
warn
want: a unit that systemd starts
got: systemd has not loaded the changed files of kubelet.service
evidence: systemctl show kubelet.service: NeedDaemonReload=yes
remedy: run ` + "`systemctl daemon-reload`"},
		{What: "no unit", Node: checkstest.Node(nil, nil), Want: "skipped\nskipped: kubelet.service does not exist here"},
	})
}

// TestPrivateUnit: a unit that only root may read, as the CIS benchmark asks, is not accused of the words that are hidden from reports.
func TestPrivateUnit(t *testing.T) {
	h := checkstest.Tree(t, kubeadmTree(nil))
	for _, name := range []string{unitFile, dropInD} {
		require.NoError(t, os.Chmod(filepath.Join(h.Root, name), 0o600))
	}
	if r := checkstest.On(t.Context(), t, h, checks.Image, "kubelet.unit", ""); r.Verdict != verdict.Pass {
		t.Errorf("%s", checkstest.Text(r))
	}
}
