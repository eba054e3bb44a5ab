package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// live leaves out the comparison with a recording, which does not keep these words of a command line.
func live(*host.Host) {}

// TestWrappers: a program that becomes kubelet is looked through, and its flags are judged.
func TestWrappers(t *testing.T) {
	start := func(command string) *hosttest.Machine {
		return checkstest.Node(map[string]string{unitFile: "[Service]\nExecStart=" + command + "\n"}, nil)
	}
	known := "pass\nwant: kubelet's command line is known\ngot: kubelet's command line is known"
	unknown := func(program string) string {
		return "unknown\nerror: kubelet's command line is unknown, so checks that need it are skipped: kubelet.service runs " + program +
			", not kubelet itself"
	}
	checkstest.RunOne(t, "kubelet.facts", checks.Run, []checkstest.Case{
		{What: "a shell", Node: start(`/bin/sh -c 'exec /usr/bin/kubelet --v=2'`), Host: live, Want: known},
		{What: "a shell that does " +
			"more", Node: start(`/bin/sh -c '. /etc/env; exec /usr/bin/kubelet'`), Host: live, Want: unknown("/bin/sh")},
		{What: "a shell's variable", Node: start(`/bin/sh -c 'exec kubelet $$OPTIONS'`), Host: live, Want: unknown("/bin/sh")},
		{What: "nice", Node: start("/usr/bin/nice -n -5 /usr/bin/kubelet"), Host: live, Want: known},
		{What: "several", Node: start("/usr/bin/taskset -c 0-3 chrt -f 50 /usr/bin/kubelet --v=2"), Host: live, Want: known},
		{What: "nothing behind it", Node: start("/usr/bin/nice -n -5 /opt/start"), Host: live, Want: unknown("/usr/bin/nice")},
		{What: "a container", Host: live, Want: unknown("/usr/bin/podman"),
			Node: start("/usr/bin/podman run --name kubelet --privileged quay.io/poseidon/kubelet:v1.34.1 --config=/etc/kubernetes/kubelet.yaml")},
	})
}

// TestHolders: kubelet inside another program has the values of that program's files, and a reason names its unit.
func TestHolders(t *testing.T) {
	unit := func(name string, files map[string]string) *hosttest.Machine {
		files["/etc/systemd/system/"+name] = "[Service]\nExecStart=/usr/local/bin/program\n"
		return checkstest.Node(files, nil)
	}
	const defaults = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nresolvConf: /etc/none\n"
	const flag = "--resolv-conf=/etc/none"
	missing := func(what, unitName, source, value, text string) checkstest.Case {
		return checkstest.Case{What: what, Node: unit(unitName, map[string]string{source: text}), Host: live, Want: "fail\n" +
			"want: resolvers that a Pod can reach\ngot: /etc/none is missing\nevidence: " + source + ": " + value + "\n" +
			"remedy: create a file with the network's resolvers (`nameserver ADDRESS`), and set resolvConf to it in kubelet's " +
			"configuration"}
	}
	checkstest.RunOne(t, "kubelet.resolv-conf", checks.Run, []checkstest.Case{
		missing("k3s",
			"k3s-agent.service", "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", "resolvConf: /etc/none", defaults),
		missing("k3s, an argument", "k3s.service", "/etc/rancher/k3s/config.yaml", flag, "kubelet-arg:\n- resolv-conf=/etc/none\n"),
		missing("RKE2",
			"rke2-agent.service", "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/20-cli-config-dir/a.conf", "resolvConf: "+
				"/etc/none", defaults),
		missing("k0s", "k0sworker.service", "/var/lib/k0s/kubelet-config.yaml", "resolvConf: /etc/none", defaults),
		missing("MicroK8s", "snap.microk8s.daemon-kubelite.service", "/var/snap/microk8s/current/args/kubelet", flag, flag+"\n--v=2\n"),
		missing("Canonical "+
			"Kubernetes", "snap.k8s.kubelet.service", "/var/snap/k8s/common/args/kubelet", flag, "--resolv-conf=\"/etc/none\"\n"),
	})
	const current, common = "--resolv-conf=${SNAP_DATA}/none", "--resolv-conf=\"$SNAP_COMMON/none\""
	for written, name := range map[string]string{current: "/var/snap/microk8s/current/none", common: "/var/snap/microk8s/common/none"} {
		n := unit("snap.microk8s.daemon-kubelite.service", map[string]string{"/var/snap/microk8s/current/args/kubelet": written + "\n"})
		r := checkstest.On(t.Context(), t, n.Host(), checks.Run, "kubelet.resolv-conf", "")
		if want := name + " is missing"; r.State.Got != want {
			t.Errorf("%s: want %s, got %s", written, want, checkstest.Text(r))
		}
	}
	args := map[string]string{"/etc/rancher/k3s/config.yaml": "kubelet-arg:\n- v=2\n", "/proc/version": ""}
	checkstest.RunOne(t, "kubelet.certificate-dates", checks.Run, []checkstest.Case{
		{What: "k3s", Node: unit("k3s-agent.service", args), Host: live,
			Want: "pass\nwant: a valid client certificate\ngot: requested by k3s-agent.service at each start"},
		{What: "k3s with an unknown command", Node: checkstest.Node(map[string]string{
			"/etc/systemd/system/k3s.service": "[Service]\nEnvironmentFile=/etc/none\nExecStart=/usr/local/bin/k3s server\n"}, nil), Host: live,
			Want: "skipped\nskipped: kubelet's command line is unknown: /etc/none, which k3s.service reads, is missing"},
		{What: "k0s before it joins", Node: unit("k0sworker.service", map[string]string{}), Host: live, Want: "skipped\n" +
			"skipped: nothing to compare: open /var/lib/k0s/kubelet.conf: no such file or directory"},
	})
	const kubeletD = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/"
	readable := "pass\nwant: files that kubelet can read\ngot: files that kubelet can read"
	checkstest.RunOne(t, "kubelet.config", checks.Run, []checkstest.Case{
		{What: "k3s", Node: unit("k3s-agent.service", map[string]string{}), Host: live, Want: readable},
		{What: "k3s writes it again", Node: unit("k3s.service", map[string]string{kubeletD + "00-k3s-defaults.conf": ""}), Host: live, Want: readable},
		{What: "the operator's", Node: unit("k3s.service", map[string]string{kubeletD + "99-own.conf": ""}), Host: live, Want: "fail\n" +
			"want: files that kubelet can read\ngot: " + kubeletD + "99-own.conf is empty\n" +
			"remedy: correct the file; the KubeletConfiguration reference lists all fields"},
	})
	checkstest.RunOne(t, "kubelet.values", checks.Boot, []checkstest.Case{{What: "k3s", Node: unit("k3s.service", map[string]string{}), Host: live,
		Want: "skipped\nskipped: there is no kubelet program to try the values with: k3s.service runs a program that contains kubelet"}})
}

// TestHolderFacts: the result names the gate's unit and its program. RKE2's package has two units, of which one is enabled.
func TestHolderFacts(t *testing.T) {
	start := func(command string) string {
		return "[Service]\nEnvironmentFile=-/etc/rke2.env\nExecStart=" + command + "\n"
	}
	const server, agent = "/usr/lib/systemd/system/rke2-server.service", "/usr/lib/systemd/system/rke2-agent.service"
	both := map[string]string{server: start("/usr/bin/rke2 server"), agent: start("/usr/bin/rke2 agent --token t"),
		"/etc/systemd/system/multi-user.target.wants/rke2-agent.service": "-> " + agent}
	own := checkstest.Node(map[string]string{"/etc/systemd/system/node.service": start("/opt/node")}, nil)
	checkstest.RunOne(t, "kubelet.facts", checks.Run, []checkstest.Case{
		{What: "k3s", Node: checkstest.Node(map[string]string{"/etc/systemd/system/k3s.service": start("/usr/local/bin/k3s server --token t")}, nil),
			Host: live, Policy: `gate { unit = "k3s.service" }`, Want: "pass\nwant: kubelet's command line is known\n" +
				"got: kubelet's options are known; k3s.service runs a program that contains kubelet"},
		{What: "two units", Tree: both, Policy: `gate { unit = "rke2-agent.service" }`, Want: "pass\nwant: kubelet's command line is known\n" +
			"got: kubelet's options are known; rke2-agent.service runs a program that contains kubelet"},
		{What: "a unit of its own", Node: own, Host: live, Policy: `gate { unit = "node.service" }`, Want: "unknown\nerror: kubelet's command line " +
			"is unknown: node.service is not known to run kubelet, and kubelet.service does not exist"},
		{What: "a unit that is not there", Node: own, Host: live, Policy: `gate { unit = "k3s.service" }`,
			Want: "skipped\nskipped: k3s.service does not exist here"},
	})
}

// TestHolderNames: k3s and RKE2 have options of their own for the node's name, which may replace a bad host name.
func TestHolderNames(t *testing.T) {
	for what, c := range map[string]struct{ command, file, text, want string }{
		"none":               {"k3s agent", "/etc/none", "", "the name is localhost"},
		"the configuration":  {"k3s agent", "/etc/rancher/k3s/config.yaml", "node-name: worker-1\n", ""},
		"the command line":   {"k3s agent --node-name worker-1", "/etc/none", "", ""},
		"a kubelet argument": {"k3s agent --kubelet-arg=hostname-override=worker-1", "/etc/none", "", ""},
		"a variable":         {"k3s agent", "/etc/k3s.env", "K3S_NODE_NAME=worker-1\n", ""},
		"another file":       {"k3s agent --config /etc/k3s.yaml", "/etc/k3s.yaml", "node-name: localhost\n", "the name is localhost"},
		"an identity":        {"k3s agent --with-node-id", "/etc/none", "", ""},
	} {
		n := checkstest.Node(map[string]string{"/proc/sys/kernel/hostname": "localhost\n", c.file: c.text,
			"/etc/systemd/system/k3s-agent.service": "[Service]\nEnvironmentFile=-/etc/k3s.env\nExecStart=/usr/local/bin/" + c.command + "\n"}, nil)
		r := checkstest.On(t.Context(), t, n.Host(), checks.Run, "kubelet.node-name", "")
		if r.State.Pass == (c.want != "") && r.State.Skip == "" || c.want != "" && r.State.Got != c.want {
			t.Errorf("%s: want %q, got %s", what, c.want, checkstest.Text(r))
		}
	}
}
