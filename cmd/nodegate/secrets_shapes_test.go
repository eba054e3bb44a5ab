package main

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/host"
)

// TestSecretsShapes plants secrets of many shapes in private files, where checks read and quote them. SECURITY.md: secrets.
func TestSecretsShapes(t *testing.T) {
	p := secretsLoad(t)
	list := catalog.For(p, checks.All)
	const unit = "/etc/systemd/system/kubelet.service"
	places := map[string][2]string{ // the file and its text, with the secret at @
		"an option of a mount":        {"/etc/fstab", "//h/s /var/lib/kubelet cifs username=a,password=@ 0 0\n/dev/sda2 none swap sw,pin=@ 0 0\n"},
		"a program before kubelet":    {unit, "[Service]\nExecStartPre=/bin/rm --token @ -f /var/lib/kubelet/cpu_manager_state KEY=@\nExecStart=/usr/bin/kubelet --v=2\n"},
		"a shell before kubelet":      {unit, "[Service]\nExecStartPre=/bin/sh -c 'curl -H \"Token: @\" https://h; kubelet --token=@'\nExecStart=/bin/sh -c 'x @; exec kubelet'\n"},
		"a runtime's endpoint":        {"/etc/kubernetes/kubelet.conf.d/10.conf", "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://user:@@h/run/x.sock\n"},
		"the URL of a kubeconfig":     {unit, "[Service]\nExecStart=/usr/bin/kubelet --kubeconfig=https://u:@@h/x?token=@\n"},
		"an API's version":            {"/etc/kubernetes/kubelet.conf.d/10.conf", "apiVersion: @\nkind: KubeletConfiguration\n"},
		"a key of kubelet":            {"/etc/kubernetes/kubelet.conf.d/10.conf", "kind: KubeletConfiguration\n@: 3\nfailSwapOn: @\n"},
		"an option of kubelet":        {unit, "[Service]\nExecStart=/usr/bin/kubelet --@ --cgroup-driver=@ --node-labels=a=@ @\n"},
		"a key of networkd":           {"/etc/systemd/network/10-eth.network", "[Match]\nName=eth*\n[Network]\nDHCP=@\nIPForward=@\n[WireGuard]\nPrivateKey=@\n"},
		"networkd's own":              {"/etc/systemd/networkd.conf", "[Network]\nManageForeignRoutes=@\n"},
		"NetworkManager's devices":    {"/etc/NetworkManager/NetworkManager.conf", "[keyfile]\nunmanaged-devices=interface-name:eth1;@\n[device-x]\nmatch-device=@\nmanaged=0\n"},
		"an include of TuneD":         {"/usr/lib/tuned/throughput/tuned.conf", "[main]\ninclude=@\n[variables]\nx=@\n[sysctl]\nnet.ipv4.ip_forward=${x}\n"},
		"a profile of TuneD":          {"/etc/tuned/active_profile", "@\n"},
		"a parameter":                 {"/etc/sysctl.d/10-a.conf", "net.ipv4.ip_forward = @\n@ = 1\nnet.netfilter.nf_conntrack_max = 1 @\n"},
		"options of a module":         {"/etc/modprobe.d/block.conf", "options br_netfilter key=@ @\ninstall br_netfilter /bin/false @\nsoftdep br_netfilter pre: @\n"},
		"another command of modprobe": {"/etc/modprobe.d/block.conf", "install br_netfilter /bin/sh -c 'echo @ | mail password=@'\nalias br_netfilter @\n"},
		"kube-proxy's mode":           {"/var/lib/kube-proxy/config.conf", "kind: KubeProxyConfiguration\nmode: @\nconntrack:\n  maxPerCore: @\n"},
		"a broken file of kube-proxy": {"/var/lib/kube-proxy/config.conf", "kind: KubeProxyConfiguration\nmode: [@\n"},
		"a kubeconfig's certificate":  {"/etc/kubernetes/kubelet.conf", strings.Replace(kubeconfigYAML, "/var/lib/kubelet/pki/kubelet-client-current.pem", "@", 1)},
		"a kubeconfig's server":       {"/etc/kubernetes/kubelet.conf", strings.Replace(kubeconfigYAML, "https://10.0.0.1:6443", "https://u:@@10.0.0.1:6443/?token=@", 1)},
		"a kubeconfig's context":      {"/etc/kubernetes/kubelet.conf", strings.Replace(kubeconfigYAML, "current-context: here", "current-context: @", 1)},
		"a broken kubeconfig":         {"/etc/kubernetes/kubelet.conf", kubeconfigYAML + "  token: @ @: [\n"},
		"a file of variables":         {"/etc/default/kubelet", "A=@\nKUBELET_EXTRA_ARGS=--cluster-domain=@ --token @ $A\n"},
		"a wildcard of variables":     {unit, "[Service]\nEnvironmentFile=/mine/@/*.env\nEnvironmentFile=/mine/@/x.env\nExecStart=/usr/bin/kubelet\n"},
		"another program":             {unit, "[Service]\nExecStart=/mine/@ --token=@\n"},
		"k3s' configuration":          {"/etc/rancher/k3s/config.yaml", "token: @\nkube-proxy-arg: [proxy-mode=@, x=@]\nnode-name: @\n"},
		"a CNI's name":                {"/etc/cni/net.d/10-calico.conflist", `{"name": "@", "plugins": [{"type": "@", "token": "@"}]}`},
		"a resolver":                  {"/run/systemd/resolve/resolv.conf", "nameserver @\nsearch @\noptions @:@\n"},
		"a rule of udev":              {"/usr/lib/udev/rules.d/84-nm.rules", "ENV{INTERFACE}==\"@\", ENV{NM_UNMANAGED}=\"1\", RUN+=\"/bin/x @\"\n"},
		"a state of kubelet":          {"/var/lib/kubelet/cpu_manager_state", `{"policyName": "@", "defaultCpuSet": "@", "entries": {"pod": {"c": "@"}}, "checksum": 1}`},
		"a condition":                 {unit, "[Unit]\nConditionEnvironment=TOKEN=@\nConditionKernelCommandLine=t=@\nAfter=@\n[Service]\nExecStart=/usr/bin/kubelet\n"},
		"a runtime's configuration":   {"/etc/containerd/config.toml", "version = 2\ndisabled_plugins = [\"@\"]\n[plugins.x]\npassword = \"@\"\n"},
	}
	shapes := []string{"Cnry7fword", "cnry7fword", "CNRY7FWORD", "Q25yeTdmK3M=", "5ec7c4a75ec7c4a7", "u:cnry7f@h", "KEY=cnry7f", "$CNRY7F", "x-cnry7f.service",
		"k8s.io/cnry7f", "cnry7f.go:12", "a/cnry7f", "cnry7f-eth0", "xcnry7f", "c\\x6ery7f", "%63nry7f", "--cnry7f"}
	announced := map[string]bool{ // SECURITY.md announces these shapes: a unit's name, a label, a variable
		"x-cnry7f.service": true, "k8s.io/cnry7f": true, "$CNRY7F": true,
	}
	planted, at := 0, 0
	var all sync.WaitGroup // a check whose subject moves waits
	for _, name := range slices.Sorted(maps.Keys(places)) {
		file, text := places[name][0], places[name][1]
		for range 5 {
			secret := shapes[at%len(shapes)]
			at++
			planted += strings.Count(text, "@")
			all.Go(func() {
				m := secretsNode(t)
				m.Files[file] = strings.ReplaceAll(text, "@", secret)
				m.Modes = map[string]fs.FileMode{file: 0o600}
				search := func(output string, document any) {
					var b bytes.Buffer
					assert.NoError(t, report.JSON(&b, document))
					for line := range strings.Lines(b.String()) {
						isThere := strings.Contains(strings.ToLower(line), "cnry7f") || strings.Contains(line, secret)
						assert.True(t, !isThere || announced[secret], "%s, %s: %s has %.300s", name, secret, output, line)
					}
				}
				h := m.Host()
				search("check", report.New(h, p, checks.Inspect(t.Context(), h, checks.All, list)))
				recording, s := host.Record(h)
				report.New(recording, p, checks.Inspect(t.Context(), recording, checks.All, list))
				search("snapshot", s)
			})
		}
	}
	all.Wait()
	t.Logf("%d secrets in %d places", planted, len(places))
}
