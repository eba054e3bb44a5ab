package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"nodegate/internal/e2e/qemu"
)

// A Backend is the packet filter for which kube-proxy writes its rules.
type Backend string

// These are the backends.
const (
	IptablesNFT    Backend = "iptables-nft"
	IptablesLegacy Backend = "iptables-legacy"
	NFTables       Backend = "nftables"
)

// proxyGroup is the group of kube-proxy's process. A rule recognises its packets by it.
const proxyGroup = 10256

// Backends returns all backends.
func Backends() []Backend { return []Backend{IptablesNFT, IptablesLegacy, NFTables} }

// ProxyNode is a node that consists of namespaces and a kube-proxy, without kubelet and Pods.
type ProxyNode struct {
	*Space
	Name    string
	Address string
	Backend Backend

	plane   *ControlPlane
	program string
	proxy   *qemu.Process
}

// AddProxyNode makes a node, connects it to the control plane, and starts its kube-proxy. The node ends with the control plane.
func (c *ControlPlane) AddProxyNode(ctx context.Context, name string, b Backend) (*ProxyNode, error) {
	space, address, err := c.addSpace(ctx)
	if err != nil {
		return nil, fmt.Errorf("adding node %s: %w", name, err)
	}
	if err := space.Shell(ctx, "sysctl -qw net.ipv4.ip_forward=1"); err != nil { // as every node does
		return nil, fmt.Errorf("adding node %s: %w", name, err)
	}
	program := filepath.Join(cmp.Or(c.ProxyBin, c.Bin), "kube-proxy")
	n := &ProxyNode{Space: space, Name: name, Address: address, Backend: b, plane: c, program: program}
	node := object{"metadata": object{"name": name, "labels": object{"kubernetes.io/hostname": name}}}
	if err := c.Create(ctx, "/api/v1/nodes", node); err != nil {
		return nil, err
	}
	status := object{"status": object{"addresses": []object{{"type": "InternalIP", "address": address}}}}
	if err := c.API.Do(ctx, http.MethodPatch, "/api/v1/nodes/"+name+"/status", status, nil); err != nil {
		return nil, err
	}
	if err := n.StartProxy(ctx); err != nil {
		return nil, fmt.Errorf("adding node %s: %w\n%s", name, err, c.Logs())
	}
	return n, nil
}

// addSpace makes a Space connected to the bridge, and returns its address.
func (c *ControlPlane) addSpace(ctx context.Context) (*Space, string, error) {
	space, err := NewSpace()
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	c.spaces = append(c.spaces, space)
	number := len(c.spaces)
	c.mu.Unlock()
	address := fmt.Sprintf("%s.%d", network, 10+number)
	if err := c.Connect(space, fmt.Sprintf("node%d", number), bridge); err != nil {
		return nil, "", err
	}
	far := `ip address add "$1/24" dev eth0; ip link set eth0 up; ip route add default via "$2"`
	return space, address, space.Shell(ctx, far, address, Address)
}

// StartProxy starts kube-proxy, and returns when its log reports that the rules are written.
func (n *ProxyNode) StartProxy(ctx context.Context) error {
	mode, path, err := n.proxyMode()
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + n.plane.ProxyKubeconfig, "--hostname-override=" + n.Name, "--proxy-mode=" + mode, "--cluster-cidr=" + PodCIDR,
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
		// A namespace must not write the limits of conntrack, which belong to the whole machine.
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}
	configure := func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "PATH="+path)
		cmd.SysProcAttr.Credential = &syscall.Credential{Gid: proxyGroup}
	}
	n.proxy, err = n.Start(n.Log(), configure, n.program, args...)
	if err != nil {
		return err
	}
	return Until(ctx, func() error {
		select {
		case <-n.proxy.Ended():
			return Final(fmt.Errorf("kube-proxy ended: %w", n.proxy.Wait()))
		default:
		}
		_, err := n.Healthz(ctx)
		return err
	})
}

// proxyMode returns kube-proxy's mode for the backend, and a PATH on which iptables is the backend's program, regardless of Debian's
// alternatives.
func (n *ProxyNode) proxyMode() (mode, path string, err error) {
	path = os.Getenv("PATH")
	program := "/usr/sbin/xtables-nft-multi"
	switch n.Backend {
	case NFTables:
		return "nftables", path, nil
	case IptablesLegacy:
		program = "/usr/sbin/xtables-legacy-multi"
	}
	dir := filepath.Join(n.plane.Dir, string(n.Backend))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", "", err
		}
	}
	return "iptables", dir + ":" + path, nil
}

// Log is the file with kube-proxy's log.
func (n *ProxyNode) Log() string { return filepath.Join(n.plane.Dir, "kube-proxy-"+n.Name+".log") }

// Healthz queries kube-proxy's health endpoint. It returns an error if kube-proxy does not answer or is unhealthy.
func (n *ProxyNode) Healthz(ctx context.Context) (string, error) {
	return n.Output(ctx, "curl", "-fsS", "--max-time", "5", "http://127.0.0.1:10256/healthz")
}

// SignalProxy sends a signal to kube-proxy: SIGSTOP, SIGCONT, SIGKILL.
func (n *ProxyNode) SignalProxy(s syscall.Signal) error { return n.proxy.Signal(s) }

// CutProxy silently drops the packets between kube-proxy and the API server, and no others. It lets incoming packets pass only on
// connections that other programs opened. If it dropped only kube-proxy's own packets, one more change would reach kube-proxy.
func (n *ProxyNode) CutProxy(ctx context.Context) error {
	return n.Shell(ctx, `nft "add table inet cut
add chain inet cut out { type filter hook output priority 0; }
add rule inet cut out ip daddr $2 tcp dport 6443 meta skgid $1 counter drop
add rule inet cut out ip daddr $2 tcp dport 6443 ct mark set $1
add chain inet cut in { type filter hook input priority 0; }
add rule inet cut in ip saddr $2 tcp sport 6443 ct mark != $1 counter drop"`, strconv.Itoa(proxyGroup), Address)
}

// MendProxy reverts CutProxy.
func (n *ProxyNode) MendProxy(ctx context.Context) error {
	return n.Shell(ctx, "nft delete table inet cut")
}

// Rules returns the rules that kube-proxy wrote, as text.
func (n *ProxyNode) Rules(ctx context.Context) (string, error) {
	switch n.Backend {
	case NFTables:
		return n.Output(ctx, "nft", "list", "ruleset")
	case IptablesLegacy:
		return n.Output(ctx, "iptables-legacy-save")
	}
	return n.Output(ctx, "iptables-nft-save")
}

// saveChains prints the chains of one Service, $1, in a format that the backend's program, $2, can restore.
const saveChains = `
case $2 in
nftables)
	for chain in $(nft list chains ip | awk -v name="-$1/" '$1 == "chain" && index($2, name) { print $2 }'); do
		echo "add chain ip kube-proxy $chain"
		echo "flush chain ip kube-proxy $chain"
		nft list chain ip kube-proxy "$chain"
	done ;;
*)
	echo "*nat"
	rules=$($2-save -t nat | grep -e "^-A KUBE-S[VE][CP]-.*\\b$1\\b")
	echo "$rules" | awk '!seen[$2]++ { print ":" $2 " - [0:0]" }'
	echo "$rules"
	echo COMMIT ;;
esac
`

// SaveChains returns kube-proxy's chains for one Service, for PutBack.
func (n *ProxyNode) SaveChains(ctx context.Context, service string) (string, error) {
	return n.Output(ctx, "sh", "-euc", saveChains, "sh", service, string(n.Backend))
}

// PutBack restores chains without kube-proxy's knowledge.
func (n *ProxyNode) PutBack(ctx context.Context, chains string) error {
	return n.Shell(ctx, `case $2 in nftables) echo "$1" | nft -f -;; *) echo "$1" | "$2-restore" --noflush;; esac`, chains, string(n.Backend))
}
