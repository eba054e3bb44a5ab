package kubelet_test

import (
	"maps"
	"strings"
	"testing"
	"time"

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
	pair := certificate(t, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)) // kubelet serves with an expired one
	own := func(config string, files map[string]string) *hosttest.Machine {
		return withUnit(flag+" --cert-dir=/pki", with(files, kubeadmConfig, header+config))
	}
	damaged := func(got, remedy string) string {
		return "\nfail\nwant: files that kubelet can read\ngot: " + got + "\nremedy: remove " + remedy + "; kubelet then gets a new " +
			"certificate"
	}
	const provider = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: [{name: ecr, " +
		"apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [\"*\"], defaultCacheDuration: 12h}]\n"
	withProvider := func(files map[string]string) *hosttest.Machine {
		return withUnit("--image-credential-provider-config=/eks/config.json --image-credential-provider-bin-dir /eks/bin", files)
	}
	lacksProvider := func(got string) string {
		return "\nfail\nwant: files that kubelet can read\ngot: " + got +
			"\nevidence: /usr/lib/systemd/system/kubelet.service: --image-credential-provider-config=/eks/config.json\nevidence: " +
			"/usr/lib/systemd/system/kubelet.service: --image-credential-provider-bin-dir=/eks/bin\nremedy: correct the file; the " +
			"KubeletConfiguration reference lists all fields"
	}
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
	extra := map[string]string{"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=\"--config-dir /etc/kubelet.d --v=2\"\n",
		"/etc/kubernetes/pki/ca.crt": pair}
	maps.Copy(extra, joined)
	checkstest.RunOne(t, "kubelet.config", checks.Boot, []checkstest.Case{
		{What: "valid, with an unknown field", Node: withUnit(flag, map[string]string{kubeadmConfig: header + "fooBar: 1\n"}),
			Want: right},
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
		{What: "joined, CA certificate missing", Node: withUnit("", joined), Want: `
fail
want: files that kubelet can read
got: /etc/kubernetes/pki/ca.crt is missing
evidence: /var/lib/kubelet/config.yaml: authentication.x509.clientCAFile: /etc/kubernetes/pki/ca.crt
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
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
		{What: "a drop-in that removes the CA certificate", Node: withUnit("", with(with(joined, "/etc/default/kubelet",
			"KUBELET_EXTRA_ARGS=\"--config-dir /etc/kubelet.d\"\n"), "/etc/kubelet.d/10-a.conf", header+"authentication: {x509: {clientCAFile: null}}\n")),
			Want: right},
		{What: "a relative path in a drop-in", Node: withUnit("", with(extra, "/etc/kubelet.d/10-a.conf", header+"tlsCertFile: pki/a.crt\n")),
			Want: right},
		{What: "a repeated field in a drop-in, which kubelet parses strictly",
			Node: withUnit("", with(extra, "/etc/kubelet.d/10-a.conf", header+"maxPods: 1\nmaxPods: 2\n")), Want: `
fail
want: files that kubelet can read
got: /etc/kubelet.d/10-a.conf is not readable: unmarshal errors: line 4: mapping key "maxPods" already defined at line 3
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
		{What: "an empty CA certificate", Node: withUnit("", with(joined, "/etc/kubernetes/pki/ca.crt", "")), Want: `
fail
want: files that kubelet can read
got: /etc/kubernetes/pki/ca.crt contains no PEM certificate
evidence: /var/lib/kubelet/config.yaml: authentication.x509.clientCAFile: /etc/kubernetes/pki/ca.crt
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
		{What: "its own certificate", Node: own("", map[string]string{"/pki/kubelet.crt": pair, "/pki/kubelet.key": pair}), Want: right},
		{What: "its own certificate, emptied", Node: own("", map[string]string{"/pki/kubelet.crt": "", "/pki/kubelet.key": pair}),
			Want: damaged("/pki/kubelet.crt contains no PEM certificate", "/pki/kubelet.crt /pki/kubelet.key")},
		{What: "its own certificate without the key", Node: own("", map[string]string{"/pki/kubelet.crt": pair}),
			Want: damaged("/pki/kubelet.key is missing", "/pki/kubelet.crt /pki/kubelet.key")},
		{What: "another certificate is named", Node: own("tlsCertFile: /a\ntlsPrivateKeyFile: /a\n", map[string]string{"/a": pair,
			"/pki/kubelet.crt": ""}), Want: right},
		{What: "a rotated serving certificate, empty", Node: own("serverTLSBootstrap: true\n", map[string]string{
			"/pki/kubelet-server-current.pem": "", "/pki/kubelet.crt": ""}),
			Want: damaged("/pki/kubelet-server-current.pem contains no PEM certificate", "/pki/kubelet-server-current.pem")},
		{What: "a rotated serving certificate", Node: own("serverTLSBootstrap: true\n", map[string]string{"/pki/kubelet-server-current.pem": pair}), Want: right},
		{What: "credential providers", Node: withProvider(map[string]string{"/eks/config.json": provider, "/eks/bin/ecr": ""}), Want: right},
		{What: "a provider configuration that is a directory", Node: withProvider(map[string]string{"/eks/config.json/1.json": "", "/eks/bin/x": ""}),
			Want: right},
		{What: "a credential provider is missing", Node: withProvider(map[string]string{"/eks/config.json": provider, "/eks/bin/gcr": ""}),
			Want: lacksProvider("/eks/bin/ecr is missing")},
		{What: "no provider directory and no configuration", Node: withProvider(nil),
			Want: lacksProvider("/eks/bin is missing; /eks/config.json is missing")},
		{What: "a provider for no image", Node: withProvider(map[string]string{"/eks/bin/ecr": "",
			"/eks/config.json": strings.Replace(provider, "[\"*\"]", "[]", 1)}), Want: lacksProvider("/eks/config.json has no matchImages for ecr")},
		{What: "a provider of an unknown version", Node: withProvider(map[string]string{"/eks/bin/ecr": "",
			"/eks/config.json": strings.Replace(provider, "credentialprovider.kubelet.k8s.io/v1", "v1", 1)}),
			Want: lacksProvider("/eks/config.json has apiVersion \"v1\" for ecr; it must be credentialprovider.kubelet.k8s.io/v1")},
		{What: "an empty provider configuration", Node: withProvider(map[string]string{"/eks/config.json": "", "/eks/bin/ecr": ""}),
			Want: lacksProvider("/eks/config.json lists no provider")},
		{What: "only the provider directory", Node: withUnit("--image-credential-provider-bin-dir=/eks/bin", nil), Want: `
fail
want: files that kubelet can read
got: --image-credential-provider-bin-dir is given without --image-credential-provider-config
evidence: /usr/lib/systemd/system/kubelet.service: --image-credential-provider-bin-dir=/eks/bin
remedy: correct the file; the KubeletConfiguration reference lists all fields`},
		{What: "specifiers of systemd in the unit", Node: withUnit("--config=%S/kubelet/config.yaml --hostname-override=%H", map[string]string{
			kubeadmConfig: header}), Want: right},
		{What: "specifiers in its variables", Node: checkstest.Node(map[string]string{kubeadmConfig: header, "/etc/kubelet.env": "B=%E",
			unitFile: "[Service]\nEnvironment=A=--config=%S/kubelet/config.yaml\nEnvironmentFile=%E/kubelet.env\n" +
				"ExecStart=/usr/bin/kubelet $A --root-dir=${B}\n"}, nil), Want: right},
		{What: "the unit copies its configuration and the certificate authority",
			Node: withUnit(flag, map[string]string{"/etc/systemd/system/kubelet.service.d/20-copy.conf": "[Service]\n" +
				"ExecStartPre=/usr/bin/install -D /etc/k/config.yaml /var/lib/kubelet/config.yaml\n"}),
			Want: right + "\nevidence: /etc/systemd/system/kubelet.service.d/20-copy.conf:2: writes /var/lib/kubelet/config.yaml before kubelet starts"},
		{What: "a script starts kubelet",
			Node: checkstest.Node(map[string]string{unitFile: "[Service]\nExecStart=/opt/start --config /none\n"}, nil),
			Want: "skipped\nskipped: kubelet's command line is unknown: kubelet.service runs /opt/start, not kubelet itself"},
		{What: "no unit", Node: checkstest.Node(nil, nil),
			Want: "skipped\nskipped: kubelet's command line is unknown: kubelet.service has 0 commands"},
	})
}

func with(files map[string]string, name, content string) map[string]string {
	all := map[string]string{name: content}
	maps.Copy(all, files)
	return all
}

func TestFlags(t *testing.T) {
	node := func(arguments, version string, rejects string) *hosttest.Machine {
		m := withUnit(arguments, map[string]string{"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--pod-infra-container-image=pause\n"})
		m.Version = map[string]string{"/usr/bin/kubelet": "Kubernetes " + version}
		if rejects != "" {
			m.Rejected = map[string]string{"/usr/bin/kubelet": rejects}
		}
		return m
	}
	const right = "\npass\nwant: flags that this kubelet accepts\ngot: flags that this kubelet accepts"
	const remedy = "\nremedy: remove the flag from kubelet's unit, its drop-ins, /var/lib/kubelet/kubeadm-flags.env or " +
		"/etc/default/kubelet"
	old := node("$KUBELET_EXTRA_ARGS", "v1.36.3",
		`kubelet: E1121 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --pod-infra-container-image"`)
	old.Files[unitFile] = "[Service]\nEnvironmentFile=/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"
	openshift := node("", "v1.31.3+aa3e8d1", "")
	openshift.Files[unitFile] = "[Service]\nExecStart=/usr/local/bin/kubenswrapper /usr/bin/kubelet " +
		"--node-labels=node-role.kubernetes.io/worker,node.openshift.io/os_id=rhcos\n"
	hyperkube := node("", "", "")
	hyperkube.Version = map[string]string{"/usr/bin/hyperkube": "Kubernetes v1.19.0+9f84db3"}
	hyperkube.Files[unitFile] = "[Service]\nExecStart=/usr/bin/hyperkube kubelet --node-labels=node-role.kubernetes.io/worker\n"
	checkstest.RunOne(t, "kubelet.flags", checks.Boot, []checkstest.Case{
		{What: "a role, and OpenShift's kubelet", Node: openshift, Want: right},
		{What: "a role, and OpenShift's hyperkube", Node: hyperkube, Want: right},
		{What: "a role, and the kubelet of another distribution", Node: node("--node-labels=node-role.kubernetes.io/worker", "v1.31.3+k3s1", ""), Want: `
fail
want: flags that this kubelet accepts
got: --node-labels must not set node-role.kubernetes.io/worker
evidence: /usr/lib/systemd/system/kubelet.service: --node-labels=node-role.kubernetes.io/worker` + remedy},
		{What: "ordinary flags: kubelet is not run", Node: node("--v=2 --node-labels=a=b --cloud-provider=external", "v1.36.3", "broken"),
			Want: right},
		{What: "a removed flag", Node: old, Want: `
fail
want: flags that this kubelet accepts
got: unknown flag: --pod-infra-container-image
evidence: /etc/default/kubelet: --pod-infra-container-image=pause` + remedy},
		{What: "kubelet fails in another way", Node: node("--foo", "v1.36.3", "kubelet: not found"), Want: right},
		{What: "Kubernetes labels that kubelet may set", Node: node("--node-labels=kubernetes.io/os=linux,topology.kubernetes.io/zone=a,"+
			"a.node.kubernetes.io/b=c,node.kubernetes.io/pool=a,example.io/k8s.io=x,k8s.io=x", "v1.20.0", ""), Want: right},
		{What: "another Kubernetes label", Node: node("--node-labels=kubernetes.io/role=node", "v1.20.0", ""), Want: `
fail
want: flags that this kubelet accepts
got: --node-labels must not set kubernetes.io/role=node
evidence: /usr/lib/systemd/system/kubelet.service: --node-labels=kubernetes.io/role=node` + remedy},
		{What: "a role", Node: node("--node-labels=a=b,node-role.kubernetes.io/worker=", "v1.20.0", ""), Want: `
fail
want: flags that this kubelet accepts
got: --node-labels must not set node-role.kubernetes.io/worker=
evidence: /usr/lib/systemd/system/kubelet.service: --node-labels=a=b,node-role.kubernetes.io/worker=` + remedy},
		{What: "a role in the first of two flags, both of which count", Node: node("--node-labels=a=b,node-role.kubernetes.io/worker= --node-labels c=d",
			"v1.20.0", ""), Want: `
fail
want: flags that this kubelet accepts
got: --node-labels must not set node-role.kubernetes.io/worker=
evidence: kubelet's command line: --node-labels=a=b,node-role.kubernetes.io/worker=` + remedy},
		{What: "white space around labels, which kubelet trims", Node: node("'--node-labels=a=b, topology.kubernetes.io/zone=a'", "v1.20.0", ""),
			Want: right},
		{What: "an in-tree cloud provider, removed", Node: node("--cloud-provider aws", "v1.31.0", ""), Want: `
fail
want: flags that this kubelet accepts
got: --cloud-provider=aws was removed from kubelet
evidence: /usr/lib/systemd/system/kubelet.service: --cloud-provider=aws` + remedy},
		{What: "an in-tree cloud provider, in an old kubelet", Node: node("--cloud-provider aws", "v1.22.0", ""), Want: right},
	})
}
