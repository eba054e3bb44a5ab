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

// TestWrappers: a program that becomes kubelet, or runs it in a container, is looked through, and its flags are judged.
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
		{What: "podman", Node: start("/usr/bin/podman run --name kubelet --privileged -v /var/lib/kubelet:/var/lib/kubelet:rshared,z " +
			"quay.io/poseidon/kubelet:v1.34.1 --config=/etc/kubernetes/kubelet.yaml"), Host: live, Want: known},
		{What: "docker, an entry point of its own", Host: live, Want: known,
			Node: start("/usr/bin/docker run --rm gcr.io/google/hyperkube@sha256:0 kubelet --v 2")},
		{What: "docker, another image", Host: live, Want: unknown("/usr/bin/docker"),
			Node: start("/usr/bin/docker run --name kubelet --rm example.com/start:1")},
	})
	const volumes = "/usr/bin/podman run --volume /etc/kubernetes:/etc/kubernetes:ro -v /srv/kubelet:/var/lib/kubelet " +
		"quay.io/poseidon/kubelet:v1.34.1 "
	shared := start(volumes + "--config=/etc/kubernetes/kubelet.yaml")
	own := start(volumes + "--config=/var/lib/kubelet/config.yaml --v=2")
	checkstest.RunOne(t, "kubelet.config", checks.Run, []checkstest.Case{
		{What: "a file of the machine", Node: shared, Host: live, Want: "fail\nwant: files that kubelet can read\n" +
			"got: /etc/kubernetes/kubelet.yaml is missing\n" +
			"remedy: correct the file; the KubeletConfiguration reference lists all fields"},
		{What: "a file of the container", Node: own, Host: live,
			Want: "pass\nwant: files that kubelet can read\ngot: files that kubelet can read"},
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
	const inside = "skipped\nskipped: kubelet's command line is unknown: k3s-agent.service runs a program that contains kubelet"
	checkstest.RunOne(t, "kubelet.certificate", checks.Run, []checkstest.Case{{What: "k3s", Want: inside,
		Node: unit("k3s-agent.service", map[string]string{"/etc/rancher/k3s/config.yaml": "kubelet-arg:\n- v=2\n"})}})
	checkstest.RunOne(t, "kubelet.config", checks.Run, []checkstest.Case{
		{What: "k3s", Node: unit("k3s-agent.service", map[string]string{}), Want: inside},
	})
}
