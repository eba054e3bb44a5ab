package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"nodegate/internal/e2e/qemu"
)

const (
	stepTime   = 20 * time.Minute // one step including its waits, on emulated machines that share two processors
	library    = ". /opt/cluster/lib.sh\n"
	afterwards = time.Minute
)

// nodeEvidence is the script that collects logs on each node after a failed step.
const nodeEvidence = `
systemctl --no-pager --failed || :
systemctl --no-pager --full -n 4 status kubelet.service containerd.service kube-proxy.service 'nodegate*' | grep -v '^ *$' | head -90
journalctl -b --no-pager -u nodegate-watch.service -o cat | tail -25
/opt/nodegate status || :
journalctl -b --no-pager -u kubelet.service -u containerd.service -p warning -o cat | tail -25
head -c 3000 /run/nodegate/report.json || :
lsmod | grep -E 'br_netfilter|overlay|conntrack' || :
sysctl net.bridge.bridge-nf-call-iptables net.ipv4.ip_forward || :
ip -brief address || :
`

// planeEvidence is the script that does the same beside the control plane.
const planeEvidence = `
kubectl get nodes,pods,services,endpointslices -A -o wide || :
kubectl get csr || :
kubectl get events -A --sort-by=.lastTimestamp | tail -25 || :
`

// Runner runs scenarios, each on new machines.
type Runner struct {
	Nodes
	Nodegate   string // the static binary
	Containerd string // the value of $CONTAINERD, a directory
	Releases   string // the value of $RELEASES, a directory
	Log        func(format string, args ...any)
}

// Run runs a scenario to its end or to its first failure. The error describes the failure and includes logs. No machine is left behind
// in any case.
func (r Runner) Run(ctx context.Context, s Scenario) error {
	var nodes []*MachineNode
	for number := 1; number <= s.Machines; number++ {
		began := time.Now()
		n, err := r.Make(ctx, number, func(tree string) error { return r.prepareTree(ctx, s, tree, number) })
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
		r.Log("%s made after %.0f s", n.Name, time.Since(began).Seconds())
	}
	defer func() {
		for _, n := range nodes {
			n.Kill()
		}
	}()
	for _, n := range nodes {
		if err := r.bootNode(ctx, n, ""); err != nil {
			return err
		}
	}
	for i, step := range s.Steps {
		began := time.Now()
		if err := r.runStep(ctx, nodes, step); err != nil {
			return fmt.Errorf("step %d of %d, %s: %w\n%s", i+1, len(s.Steps), step.Where(), err, r.collectEvidence(ctx, nodes))
		}
		r.Log("step %d of %d, %s, took %.0f s", i+1, len(s.Steps), step.Where(), time.Since(began).Seconds())
	}
	return nil
}

// prepareTree puts the binary into a tree and runs the scenario's prepare.sh.
func (r Runner) prepareTree(ctx context.Context, s Scenario, tree string, number int) error {
	if err := copyFile(r.Nodegate, filepath.Join(tree, "opt/nodegate"), 0o755); err != nil {
		return err
	}
	if s.Prepare == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-eu", s.Prepare)
	cmd.Env = append(os.Environ(), "ROOT="+tree, "NODEGATE="+r.Nodegate, "SCENARIO="+s.Dir, "CONTAINERD="+r.Containerd,
		"RELEASES="+r.Releases, fmt.Sprintf("NODE=node%d", number))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", s.Prepare, err, out)
	}
	return nil
}

func (r Runner) bootNode(ctx context.Context, n *MachineNode, cmdline string) (err error) {
	n.on = time.Now()
	n.Guest, err = n.Machine.Boot(ctx, cmdline)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return nil
}

func (r Runner) runStep(ctx context.Context, nodes []*MachineNode, s Step) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	if s.Node == 0 {
		times := ""
		for _, n := range nodes {
			times += fmt.Sprintf("%s_on=%d\n", n.Name, n.on.UnixMilli())
		}
		out, err := r.Plane.Kubectl(ctx, times+s.Script)
		r.logStep(s, out)
		return err
	}
	n := nodes[s.Node-1]
	if s.Reboot {
		if err := n.Guest.Reboot(ctx); err != nil {
			return err
		}
		return r.bootNode(ctx, n, s.Script)
	}
	out, err := n.Guest.Run(ctx, library+s.Script)
	if err != nil {
		return fmt.Errorf("%w\nconsole:\n%s", err, qemu.Tail(n.Guest.Console(), 40))
	}
	r.logStep(s, out.Stdout)
	if out.Code != 0 {
		return fmt.Errorf("the script exited with %d:\n%s", out.Code, out.Stderr)
	}
	return nil
}

func (r Runner) logStep(s Step, out string) {
	if out = strings.TrimSpace(out); out != "" {
		r.Log("%s:\n%s", s.Where(), out)
	}
}

// collectEvidence returns the state of the API, the control plane and all nodes.
func (r Runner) collectEvidence(ctx context.Context, nodes []*MachineNode) string {
	ctx, cancel := context.WithTimeout(ctx, afterwards)
	defer cancel()
	out, err := r.Plane.Kubectl(ctx, planeEvidence)
	all := fmt.Sprintf("=== the API\n%s\n", errors.Join(errors.New(out), err))
	for _, n := range nodes {
		seen, err := n.Guest.Run(ctx, "set +e\n"+nodeEvidence)
		if err != nil {
			seen.Stderr += err.Error()
		}
		all += fmt.Sprintf("=== %s\n%s%s\n--- console\n%s\n", n.Name, seen.Stdout, seen.Stderr, qemu.Tail(n.Guest.Console(), 15))
	}
	return all
}

// Kill ends the machine if it runs.
func (n *MachineNode) Kill() {
	if n.Guest != nil {
		n.Guest.Kill()
	}
}

// Kubectl runs a script (sh -eu, with rootfs/opt/cluster/lib.sh) beside the control plane. kubectl has the administrator's rights.
func (c *ControlPlane) Kubectl(ctx context.Context, script string) (string, error) {
	text, err := rootfs.ReadFile("rootfs/opt/cluster/lib.sh")
	if err != nil {
		return "", err
	}
	begin := fmt.Sprintf("export KUBECONFIG=%s PATH=%s:$PATH HOME=%s\n", c.Kubeconfig, c.Bin, c.Dir)
	out, err := c.Output(ctx, "sh", "-euc", begin+string(text)+script)
	if err != nil {
		// Do not repeat the script, which would be most of the message.
		var exit *exec.ExitError
		if _, complaints, found := strings.Cut(err.Error(), script); found && errors.As(err, &exit) {
			err = fmt.Errorf("the script exited with %d%s", exit.ExitCode(), complaints)
		}
	}
	return out, err
}
