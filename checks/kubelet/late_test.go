package kubelet_test

import (
	"net/netip"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

// late returns a node with kubelet 1.37, flags, and lines of its configuration.
func late(flags, config string, files map[string]string) *hosttest.Machine {
	m := withUnit("--config="+kubeadmConfig+" "+flags, with(files, kubeadmConfig, header+config))
	m.Version = map[string]string{"/usr/bin/kubelet": "Kubernetes v1.37.2"}
	return m
}

const (
	inConfig   = "\nevidence: /var/lib/kubelet/config.yaml: "
	inUnitFile = "\nevidence: /usr/lib/systemd/system/kubelet.service: "
)

func TestNodeIP(t *testing.T) {
	node := func(ip string) *hosttest.Machine {
		m := late("--node-ip="+ip, "", nil)
		m.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
		return m
	}
	const ok, remedy = "addresses of this machine's links",
		"\nremedy: correct --node-ip, or start kubelet after the link has its address: `systemctl edit kubelet`, After=network-online.target"
	for ip, want := range map[string]string{
		"10.0.0.7": "", "10.0.0.7,fd00::7": "", "203.0.113.9": "no link has 203.0.113.9", "10.0.0.7,fd00::9": "no link has fd00::9",
		"127.0.0.1": "127.0.0.1 is a loopback address", "fe80::1": "fe80::1 is a link-local address", "224.0.0.1": "224.0.0.1 is a multicast address",
	} {
		text := "\npass\nwant: " + ok + "\ngot: " + ok + inUnitFile + "--node-ip=" + ip
		if want != "" {
			text = "\nwarn\nwant: " + ok + "\ngot: " + want + inUnitFile + "--node-ip=" + ip + remedy
		}
		checkstest.RunOne(t, "kubelet.node-ip", checks.Run, []checkstest.Case{{What: ip, Node: node(ip), Want: text}})
	}
	checkstest.RunOne(t, "kubelet.node-ip", checks.Run, []checkstest.Case{{What: "unspecified", Node: node("0.0.0.0,::"),
		Want: "skipped\nskipped: kubelet has no --node-ip with a particular address"}})
}

func TestNodeName(t *testing.T) {
	const joined, ok = "--kubeconfig=/etc/kubernetes/kubelet.conf ", "a valid name that no other machine has by default"
	for _, c := range []struct{ what, flags, hostname, verdict, got, seen string }{
		{"a host name", joined, "Node1.example.com", "pass", ok, "\nevidence: /proc/sys/kernel/hostname: Node1.example.com"},
		{"localhost", joined, "localhost", "warn", "the name is localhost", "\nevidence: /proc/sys/kernel/hostname: localhost"},
		{"Red Hat's default", joined, "localhost.localdomain", "warn", "the name is localhost.localdomain",
			"\nevidence: /proc/sys/kernel/hostname: localhost.localdomain"},
		{"an underscore", joined, "my_node", "warn", "the name my_node is not a DNS subdomain", "\nevidence: /proc/sys/kernel/hostname: my_node"},
		{"an override", joined + "--hostname-override=n1", "localhost", "pass", ok, inUnitFile + "--hostname-override=n1"},
		{"standalone", "", "localhost", "skipped", "", "skipped: kubelet has no --kubeconfig"},
		{"not registered", joined + "--register-node=false", "localhost", "skipped", "", "skipped: kubelet does not register its Node"},
	} {
		want := "\n" + c.verdict + "\nwant: " + ok + "\ngot: " + c.got + c.seen
		switch c.verdict {
		case "warn":
			want += "\nremedy: run `hostnamectl set-hostname NAME`, or set --hostname-override; find out why cloud-init or DHCP did not set it " +
				"before kubelet started"
		case "skipped":
			want = "skipped\n" + c.seen
		}
		m := late(c.flags, "", nil)
		m.Sysctl("kernel/hostname", c.hostname)
		checkstest.RunOne(t, "kubelet.node-name", checks.Run, []checkstest.Case{{What: c.what, Node: m, Want: want}})
	}
}

// TestNodeNameInCertificate: the API server lets kubelet change only the Node of its certificate's name.
func TestNodeNameInCertificate(t *testing.T) {
	const current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	for name, want := range map[string]string{"n1": "", "n2": "the name n2, and a certificate for n1"} {
		m := late("--kubeconfig=/etc/kubernetes/kubelet.conf --rotate-certificates", "",
			map[string]string{current: certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))})
		m.Sysctl("kernel/hostname", name)
		r := checkstest.On(t.Context(), t, m.Host(), checks.Run, "kubelet.node-name", "")
		if got := r.State.Got; r.Differs() != (want != "") || want != "" && got != want || r.Err != nil {
			t.Errorf("%s: %s (%v)", name, got, r.Err)
		}
	}
}
