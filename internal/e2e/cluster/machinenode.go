package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"nodegate/internal/e2e/vm"
)

//go:embed all:rootfs all:flannel
var rootfs embed.FS

//go:embed guest-packages
var guestPackages string

// nodeMemory is the memory of a machine with kubelet, containerd and a few Pods, in MiB.
const nodeMemory = 2048

// MachineNode is a node in QEMU with a real kubelet, containerd and kube-proxy.
type MachineNode struct {
	Name    string
	Address string
	PodCIDR string // empty with flannel, because kube-controller-manager assigns it
	Machine vm.Machine
	Guest   *vm.Guest // the current boot, or nil

	number int
	on     time.Time // start of the boot
}

// Nodes makes machines for one control plane.
type Nodes struct {
	Base    *vm.Base
	Plane   *ControlPlane
	Pod     string // the program for Pods
	Flannel string // flanneld for an overlay; empty for routes between the nodes
	Scratch string // directory for trees and disks; the caller removes it

	Bake *vm.Bake // if not nil, Packer bakes the trees; Make sets Dir and Base
}

// NodeBase returns the tree of a Debian release for nodes, and builds it if the cache lacks it.
func NodeBase(ctx context.Context, cache vm.Cache, suite string) (*vm.Base, error) {
	packages := vm.Words(guestPackages)
	if suite != vm.Suite {
		return cache.Other(ctx, suite, suite+".cluster", packages...)
	}
	return cache.Tree(ctx, "cluster", packages...)
}

// Make makes the disk of a node that has not joined yet; number is 1 or above. prepare may change its tree. The caller boots the machine.
func (m Nodes) Make(ctx context.Context, number int, prepare func(tree string) error) (*MachineNode, error) {
	n := &MachineNode{
		Name: fmt.Sprintf("node%d", number), Address: fmt.Sprintf("%s.%d", network, 100+number),
		PodCIDR: fmt.Sprintf("10.244.%d.0/24", number), number: number,
	}
	dir := filepath.Join(m.Scratch, n.Name)
	if m.Flannel != "" {
		n.PodCIDR = ""
	}
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := m.Base.Clone(ctx, tree); err != nil {
		return nil, err
	}
	if err := errors.Join(m.copyPrograms(tree), m.writeConfig(tree, n)); err != nil {
		return nil, fmt.Errorf("making %s: %w", n.Name, err)
	}
	if err := prepare(tree); err != nil {
		return nil, fmt.Errorf("preparing %s: %w", n.Name, err)
	}
	var err error
	if n.Machine, err = m.makeMachine(ctx, tree, dir); err != nil {
		return nil, err
	}
	tap := "tap-" + n.Name
	script := `ip tuntap add dev "$1" mode tap; ip link set "$1" master "$2" up; test -z "$3" || ip route add "$3" via "$4"`
	if err := m.Plane.Shell(ctx, script, tap, bridge, n.PodCIDR, n.Address); err != nil {
		return nil, err
	}
	n.Machine.Memory, n.Machine.Taps, n.Machine.Enter = nodeMemory, []string{tap}, m.Plane.EnterNetwork
	return n, os.RemoveAll(tree)
}

func (m Nodes) makeMachine(ctx context.Context, tree, dir string) (vm.Machine, error) {
	if m.Bake == nil {
		return m.Base.MakeMachine(ctx, tree, dir)
	}
	b := *m.Bake
	b.Base, b.Dir, b.Memory = m.Base, dir, nodeMemory
	// The build machine must not run as a node: kubelet would write files there that each node must have for itself.
	b.Words = "systemd.mask=kubelet.service systemd.mask=kube-proxy.service"
	_, err := b.Run(ctx, tree)
	return vm.Machine{Base: m.Base, Disk: b.Image(), Format: "qcow2"}, err
}

// copyPrograms copies the compiled programs and the images.
func (m Nodes) copyPrograms(tree string) error {
	for _, name := range []string{"kubelet", "kube-proxy"} {
		if err := copyFile(m.Plane.programPath(name), filepath.Join(tree, "usr/local/bin", name), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(tree, "opt/cluster"), 0o755); err != nil {
		return err
	}
	return writeImages(m.Pod, filepath.Join(tree, "opt/cluster/images.tar"))
}

// writeConfig writes the node's configuration.
func (m Nodes) writeConfig(tree string, n *MachineNode) error {
	if err := os.RemoveAll(filepath.Join(tree, "lib/systemd/system/kubelet.service")); err != nil { // the stand-in's
		return err
	}
	wrong := []error{vm.WriteAll(rootfs, "rootfs", tree)}
	files := map[string]string{
		"etc/hostname":                        n.Name + "\n",
		"etc/kubernetes/node.env":             fmt.Sprintf("NODE=%s\nNODE_NAME=%s\nADDRESS=%s\n", n.Name, n.Name, n.Address),
		"etc/systemd/network/50-eth0.network": m.networkConfig(n),
	}
	if m.Flannel != "" {
		wrong = append(wrong, m.installFlannel(tree))
	} else {
		files["etc/cni/net.d/10-bridge.conflist"] = fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, n.PodCIDR)
	}
	for name, text := range files {
		wrong = append(wrong, vm.Write(filepath.Join(tree, name), []byte(text), 0o644))
	}
	for from, to := range map[string]string{
		m.Plane.ca.filePath("ca.crt"): "ca.crt", m.Plane.BootKubeconfig: "bootstrap.kubeconfig", m.Plane.ProxyKubeconfig: "proxy.kubeconfig",
	} {
		wrong = append(wrong, copyFile(from, filepath.Join(tree, "etc/kubernetes", to), 0o600))
	}
	for unit, from := range map[string]string{
		"kubelet.service": "/etc", "kube-proxy.service": "/etc", "cluster-images.service": "/etc",
		"containerd.service": "/lib", "systemd-networkd.service": "/lib",
	} {
		wrong = append(wrong, vm.Link(from+"/systemd/system/"+unit, filepath.Join(tree, "etc/systemd/system/multi-user.target.wants", unit)))
	}
	return errors.Join(wrong...)
}

// networkConfig returns the configuration of the node's network card, with a route to the Pods of each other node unless flannel adds them.
func (m Nodes) networkConfig(n *MachineNode) string {
	text := fmt.Sprintf("[Match]\nName=eth0\n\n[Network]\nAddress=%s/24\nGateway=%s\n", n.Address, Address)
	for other := 1; other <= 2 && m.Flannel == ""; other++ {
		if other != n.number {
			text += fmt.Sprintf("\n[Route]\nDestination=10.244.%d.0/24\nGateway=%s.%d\n", other, network, 100+other)
		}
	}
	return text
}

func copyFile(from, to string, mode fs.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return vm.Write(to, text, mode)
}
