//go:build cluster

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/qemu"
	"nodegate/internal/e2e/vm"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// fatal is a configuration with which kubelet exits although the gate passes.
type fatal struct {
	what   string
	flags  string // additional flags of kubelet
	first  string // lines of the configuration with which kubelet runs once before, or ""
	breaks string // shell script; config is kubelet's configuration
	says   string // part of kubelet's message on the console
}

func fatals() []fatal {
	const kubeconfig = "--kubeconfig=/etc/kubernetes/kubelet.conf"
	add := func(lines string) string { return "printf '" + lines + `\n' >>$config` }
	static := func(memory string) string {
		return `memoryManagerPolicy: Static\nevictionHard: {memory.available: ` + memory + `}\nreservedMemory: [{numaNode: 0, limits: {memory: ` + memory + `}}]`
	}
	return []fatal{
		{what: "more memory reserved than the machine has", breaks: add("kubeReserved: {memory: 100Ti}"), says: "Expected capacity >= reservation"},
		{what: "a reservation that is not a quantity", breaks: add("kubeReserved: {memory: 500MB}"), says: "quantities must match"},
		{what: "a changed CPU manager policy", breaks: add(`cpuManagerPolicy: static\nreservedSystemCPUs: "0"`) + "; echo " +
			`'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}' >/var/lib/kubelet/cpu_manager_state`,
			says: "differs from state checkpoint policy"},
		{what: "the memory manager's state of another total", first: static("100Mi"), breaks: add(static("200Mi")),
			says: "the expected machine state is different from the real one"},
		{what: "a memory manager without reservations", breaks: add("memoryManagerPolicy: Static"), says: "is not equal to the value"},
		{what: "an unknown topology option", breaks: add(`topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {fast: "true"}`),
			says: "unknown Topology Manager Policy option"},
		{what: "an unknown CPU option", breaks: add(`cpuManagerPolicy: static\nreservedSystemCPUs: "0"\ncpuManagerPolicyOptions: {fast: "true"}`),
			says: "unknown CPU Manager Policy option"},
		{what: "no cgroup for a reservation", breaks: add(`kubeReserved: {cpu: 10m}\nenforceNodeAllocatable: [pods, kube-reserved]\n` +
			"kubeReservedCgroup: /kube.slice"), says: "Failed to enforce Kube Reserved Cgroup Limits"},
		{what: "no root cgroup", breaks: add("cgroupRoot: /nosuchroot"), says: "nosuchroot"},
		{what: "no authority file in the kubeconfig", flags: kubeconfig, breaks: "sed -i 's|server:|certificate-authority: none.crt, server:|' /etc/kubernetes/kubelet.conf",
			says: "unable to read certificate-authority"},
		{what: "an unknown context in the kubeconfig", flags: kubeconfig, breaks: "sed -i 's/^current-context: .*/current-context: S3cretContext/' /etc/kubernetes/kubelet.conf",
			says: "context was not found for specified context: (value left out)"},
		{what: "no credential provider", flags: "--image-credential-provider-config=/etc/providers.yaml --image-credential-provider-bin-dir=/etc/none",
			breaks: ": >/etc/providers.yaml", says: "/etc/none"},
	}
}

// exitsLibrary has the functions of the guest. The gate must name kubelet's exit after exactly one exit.
const exitsLibrary = `. /opt/cluster/lib.sh
config=/etc/kubernetes/kubelet.yaml
drop=/run/systemd/system/kubelet.service.d
flags() {
	mkdir -p $drop
	printf '[Service]\nExecStart=\nExecStart=/usr/local/bin/kubelet --config=%s --hostname-override=n1 %s\n' $config "$1" >$drop/flags.conf
	systemctl daemon-reload
}
log() { journalctl -b --no-pager -o cat -u kubelet.service --after-cursor="$cursor"; }
named() { log | grep -q '^nodegate: kubelet.exit: '; }
reset() {
	systemctl stop kubelet.service
	systemctl reset-failed kubelet.service || :
	rm -f /var/lib/kubelet/*_state
	cp /opt/whole.yaml $config
	cp /opt/kubelet.conf /etc/kubernetes/kubelet.conf
	cursor=$(journalctl -b -n 1 -o cat --show-cursor | sed -n 's/^-- cursor: //p')
}
ran() { [ -s /var/lib/kubelet/memory_manager_state ] && log | grep -q 'Started kubelet'; }
# fails FLAGS FIRST: kubelet runs once with FIRST in its configuration, if that is not empty. Afterwards broken breaks it.
fails() {
	reset
	flags "$1"
	if [ -n "$2" ]; then
		printf "$2\n" >>$config
		systemctl start kubelet.service
		within 300 ran
		systemctl stop kubelet.service
		cp /opt/whole.yaml $config
	fi
	broken
	systemctl --no-block start kubelet.service
	within 300 named
	exits=$(log | sed '/^nodegate: kubelet.exit: /q' | grep -c 'Main process exited') || :
	[ "$exits" = 1 ] || die "named after $exits exits: $(log | tail -n 20)"
	systemctl stop kubelet.service
	log | grep -m 1 '^nodegate: kubelet.exit: '
}
`

const exitsConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: ""
`

const exitsKubeconfig = `current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: S3cretToken}}]
`

// TestKubeletExits runs real kubelets behind the gate in a virtual machine. Each of twelve configurations makes kubelet exit. At its second
// start the gate must print kubelet's own words and a remedy on the console, and none of the values of a private kubeconfig.
// KUBERNETES="1.31.4 1.34.4 1.37.2" runs several versions.
func TestKubeletExits(t *testing.T) {
	missing := vm.Missing()
	hosttest.Need(t, len(missing) == 0, "a host that runs virtual machines:\n"+strings.Join(missing, "\n"))
	cache := vm.DefaultCache(repositoryRoot(t))
	base, err := NodeBase(t.Context(), cache, vm.Suite)
	require.NoError(t, err)
	binary := buildNodegate(t)
	for _, version := range strings.Fields(cmp.Or(os.Getenv("KUBERNETES"), Newest)) {
		t.Run(version, func(t *testing.T) {
			bin, err := Build(t.Context(), CacheDir(repositoryRoot(t)), version, []string{"kubelet"})
			require.NoError(t, err)
			scratch, err := cache.Scratch()
			require.NoError(t, err)
			defer func() {
				assert.NoError(t, scratch.Close())
			}()
			tree := filepath.Join(scratch.Dir, "tree")
			require.NoError(t, errors.Join(base.Clone(t.Context(), tree), writeExitsTree(t.Context(), tree, bin+"/kubelet", binary)))
			m, err := base.MakeMachine(t.Context(), tree, scratch.Dir)
			require.NoError(t, err)
			m.Memory = nodeMemory
			guest, err := m.Boot(t.Context(), "")
			require.NoError(t, err)
			defer guest.Kill()
			for _, f := range fatals() {
				t.Run(f.what, func(t *testing.T) { f.try(t, guest) })
			}
		})
	}
}

// try breaks kubelet in the guest.
func (f fatal) try(t *testing.T, guest *vm.Guest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTime)
	defer cancel()
	before := len(guest.Console())
	began := time.Now()
	out, err := guest.Run(ctx, exitsLibrary+"broken() { "+f.breaks+"; }\nfails '"+f.flags+"' '"+f.first+"'\n")
	if err != nil || out.Code != 0 {
		t.Fatalf("%v, exit %d\n%s%s\n%s", err, out.Code, out.Stdout, out.Stderr, qemu.Tail(guest.Console(), 20))
	}
	console := guest.Console()[before:]
	named := regexp.MustCompile(`nodegate: kubelet\.exit: .*` + regexp.QuoteMeta(f.says) + `.*; .+`).FindString(console)
	require.True(t, named != "" && !strings.Contains(console, "S3cret") && !strings.Contains(named, "read kubelet's last messages"),
		"the console does not name %q with a remedy, or has a private value:\n%s\n%s", f.says, qemu.Tail(console, 20), out.Stdout)
	t.Logf("%.0f s: %s", time.Since(began).Seconds(), named)
}

// writeExitsTree turns a node's tree into one with a kubelet without an API server, and nodegate.
func writeExitsTree(ctx context.Context, tree, kubelet, nodegate string) error {
	if err := os.RemoveAll(filepath.Join(tree, "lib/systemd/system/kubelet.service")); err != nil { // the stand-in's
		return err
	}
	wrong := []error{vm.WriteAll(rootfs, "rootfs", tree), copyFile(kubelet, filepath.Join(tree, "usr/local/bin/kubelet"), 0o755)}
	for name, text := range map[string]string{
		"opt/whole.yaml": exitsConfig, "etc/kubernetes/kubelet.yaml": exitsConfig,
		"etc/systemd/system/kubelet.service": "[Unit]\nAfter=containerd.service\nWants=containerd.service\n[Service]\n" +
			"ExecStart=/usr/local/bin/kubelet --config=/etc/kubernetes/kubelet.yaml\nRestart=always\nRestartSec=2s\n",
	} {
		wrong = append(wrong, vm.Write(filepath.Join(tree, name), []byte(text), 0o644))
	}
	wrong = append(wrong, vm.Write(filepath.Join(tree, "opt/kubelet.conf"), []byte(exitsKubeconfig), 0o600),
		vm.Link("/lib/systemd/system/containerd.service", filepath.Join(tree, "etc/systemd/system/multi-user.target.wants/containerd.service")))
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, nodegate, "install", "--root", tree).CombinedOutput(); err != nil {
		return fmt.Errorf("nodegate install: %w\n%s", err, out)
	}
	return nil
}
