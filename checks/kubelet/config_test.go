package kubelet_test

import (
	"maps"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

const (
	unitFile = "/usr/lib/systemd/system/kubelet.service"
	header   = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
)

// withUnit returns a node whose unit runs kubelet with these arguments.
func withUnit(arguments string, files map[string]string) *hosttest.Machine {
	all := map[string]string{unitFile: "[Service]\nExecStart=/usr/bin/kubelet " + arguments + "\n"}
	maps.Copy(all, files)
	return checkstest.Node(all, nil)
}

func TestConfig(t *testing.T) {
	const flag = "--config /var/lib/kubelet/config.yaml"
	broken := func(what, content, got string) checkstest.Case {
		return checkstest.Case{What: what, Node: withUnit(flag, map[string]string{kubeadmConfig: content}), Want: `
fail
want: files that kubelet can read
got: /var/lib/kubelet/config.yaml is ` + got + `
remedy: correct the file; the KubeletConfiguration reference lists all fields`}
	}
	const right = "\npass\nwant: files that kubelet can read\ngot: files that kubelet can read"
	prepared := func(command string) *hosttest.Machine {
		return withUnit(flag, map[string]string{"/etc/systemd/system/kubelet.service.d/20-copy.conf": "[Service]\nExecStartPre=" + command + "\n"})
	}
	const written = "skipped\nskipped: the command of /etc/systemd/system/kubelet.service.d/20-copy.conf:2 may write kubelet's configuration " +
		"when the unit starts"
	kubeadm := map[string]string{
		"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`,
	}
	joined := map[string]string{
		kubeadmConfig:                  header + "authentication:\n  x509:\n    clientCAFile: /etc/kubernetes/pki/ca.crt\n",
		"/etc/kubernetes/kubelet.conf": "users: []",
	}
	maps.Copy(joined, kubeadm)
	extra := map[string]string{"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=\"--config-dir /etc/kubelet.d --v=2\"\n"}
	maps.Copy(extra, joined)
	checkstest.RunOne(t, "kubelet.config", checks.Boot, []checkstest.Case{
		{What: "valid, with an unknown field", Node: withUnit(flag, map[string]string{kubeadmConfig: header + "fooBar: 1\n"}), Want: right},
		{What: "a repeated field: the last one counts", Node: withUnit(flag, map[string]string{
			kubeadmConfig: header + "rotateCertificates: true\nrotateCertificates: false\n"}), Want: right},
		{What: "the directory of drop-ins is missing",
			Node: withUnit(flag+" --config-dir=/etc/kubelet.d", map[string]string{kubeadmConfig: header}),
			Want: `
fail
want: files that kubelet can read
got: /etc/kubelet.d is missing
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
		broken("missing type", "failSwapOn: false\n", "without apiVersion or kind"),
		broken("another version", "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n",
			"of apiVersion kubelet.config.k8s.io/v1, not kubelet.config.k8s.io/v1beta1"),
		broken("another kind", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfig\n",
			"of kind KubeletConfig, not KubeletConfiguration"),
		broken("empty", "", "empty"),
		broken("not YAML", "a: [\n", "not readable: line 1: did not find expected node content"),
		{What: "missing", Node: withUnit(flag, nil), Want: broken("", "", "missing").Want},
		{What: "no configuration at all", Node: withUnit("", nil), Want: right},
		{What: "kubeadm has not joined", Node: withUnit("", kubeadm), Want: "skipped\nskipped: this node has not joined a cluster: " +
			"kubeadm join writes kubelet's files"},
		{What: "a drop-in without a type, named in the environment file",
			Node: withUnit("", with(extra, "/etc/kubelet.d/10-a.conf", "failSwapOn: false\n")), Want: `
fail
want: files that kubelet can read
got: /etc/kubelet.d/10-a.conf is without apiVersion or kind
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
		{What: "a drop-in in a subdirectory whose name ends in .conf",
			Node: withUnit("", with(with(extra, "/etc/kubelet.d/10-a.conf/20-b.conf", header), "/etc/kubelet.d/c/d.conf", "a: [\n")), Want: `
fail
want: files that kubelet can read
got: /etc/kubelet.d/c/d.conf is not readable: line 1: did not find expected node content
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
		{What: "a repeated field in a drop-in, which kubelet parses strictly",
			Node: withUnit("", with(extra, "/etc/kubelet.d/10-a.conf", header+"maxPods: 1\nmaxPods: 2\n")), Want: `
fail
want: files that kubelet can read
got: /etc/kubelet.d/10-a.conf is not readable: unmarshal errors: line 4: mapping key "maxPods" already defined at line 3
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
		{What: "specifiers of systemd in the unit", Node: withUnit("--config=%S/kubelet/config.yaml --hostname-override=%H", map[string]string{
			kubeadmConfig: header}), Want: right},
		{What: "specifiers in its variables", Node: checkstest.Node(map[string]string{kubeadmConfig: header, "/etc/kubelet.env": "B=%E",
			unitFile: "[Service]\nEnvironment=A=--config=%S/kubelet/config.yaml\nEnvironmentFile=%E/kubelet.env\n" +
				"ExecStart=/usr/bin/kubelet $A --root-dir=${B}\n"}, nil), Want: right},
		{What: "the unit copies its configuration", Node: prepared("/usr/bin/install -D /etc/k/config.yaml /var/lib/kubelet/config.yaml"), Want: written},
		{What: "a shell may write it", Node: prepared("-/bin/sh -c 'true'"), Want: written},
		{What: "a program of the operator may write it", Node: prepared("/opt/prepare"), Want: written},
		{What: "harmless commands", Node: prepared("/bin/mkdir -p /var/lib/kubelet\nExecStartPre=/sbin/iptables -P FORWARD ACCEPT -w 5"),
			Want: broken("", "", "missing").Want},
		{What: "a path below the working directory", Node: withUnit("--config=c.yaml --config-dir=d\nWorkingDirectory=-/srv", map[string]string{
			"/srv/c.yaml": header, "/srv/d/1.conf": header}), Want: right},
		{What: "a path below /", Node: withUnit("--config=c.yaml", map[string]string{"/c.yaml": header}), Want: right},
		{What: "a script starts kubelet",
			Node: checkstest.Node(map[string]string{unitFile: "[Service]\nExecStart=/opt/start --config /none\n"}, nil),
			Want: "skipped\nskipped: kubelet's command line is unknown: kubelet.service runs /opt/start, not kubelet itself"},
		{What: "no unit", Node: checkstest.Node(nil, nil),
			Want: "skipped\nskipped: kubelet's command line is unknown: kubelet.service does not exist"},
	})
}

func with(files map[string]string, name, content string) map[string]string {
	all := map[string]string{name: content}
	maps.Copy(all, files)
	return all
}
