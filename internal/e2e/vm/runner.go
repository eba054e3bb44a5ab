package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nodegate/internal/e2e/qemu"
)

const (
	prepareTime = 5 * time.Minute
	bootScript  = 30 * time.Minute // one boot script, including its deliberate waits
	afterwards  = time.Minute
)

// library is put before every boot script.
const library = ". /opt/vm/lib.sh\n"

// evidence is the script that runs in the guest after a boot script failed.
const evidence = `
systemctl --no-pager --full status kubelet.service 'nodegate*' | head -60
journalctl -b --no-pager -o short-monotonic | grep -Ev ' kernel: ' | tail -80
head -c 4000 /run/nodegate/report.json
tail -n +1 /run/vm/kubelet/*/verdict
systemctl list-jobs
`

// Runner runs scenarios on one base image with one binary.
type Runner struct {
	Base     *Base
	Nodegate string // the static binary
	Scratch  string // a directory for trees, disks and logs; the caller removes it
	Log      func(format string, args ...any)
}

// Run runs a scenario to its end or to its first failure. The error describes the failure and includes logs of the guest. No QEMU is
// left behind in any case.
func (r Runner) Run(ctx context.Context, s Scenario) (err error) {
	dir, err := os.MkdirTemp(r.Scratch, s.Name+"-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := r.makeMachine(ctx, s, dir)
	if err != nil {
		return err
	}
	return r.bootAll(ctx, m, s.Boots)
}

func (r Runner) bootAll(ctx context.Context, m Machine, boots []Boot) error {
	for i, boot := range boots {
		began := time.Now()
		if err := r.bootOnce(ctx, m, boot, i+1 < len(boots)); err != nil {
			return fmt.Errorf("boot %d of %d: %w", i+1, len(boots), err)
		}
		r.Log("boot %d of %d took %.0f s", i+1, len(boots), time.Since(began).Seconds())
	}
	return nil
}

// makeMachine prepares a tree and makes the disk.
func (r Runner) makeMachine(ctx context.Context, s Scenario, dir string) (Machine, error) {
	tree := filepath.Join(dir, "tree")
	if err := r.Base.Clone(ctx, tree); err != nil {
		return Machine{}, err
	}
	command := append(slices.Clone(r.Base.Arch.user), r.Nodegate, "install", "--root", tree)
	if s.Policy != "" {
		command = append(command, "--policy", s.Policy)
	}
	if s.Prepare != "" {
		command = []string{"sh", "-eu", s.Prepare}
	}
	env := []string{"ROOT=" + tree, "NODEGATE=" + r.Nodegate, "SCENARIO=" + s.Dir}
	out, err := runProgram(ctx, prepareTime, env, command[0], command[1:]...)
	if err != nil {
		return Machine{}, fmt.Errorf("preparing the tree: %w", err)
	}
	if out != "" {
		r.Log("prepared:\n%s", out)
	}
	if err := r.checkBootOrder(ctx, tree); err != nil {
		return Machine{}, err
	}
	m, err := r.Base.MakeMachine(ctx, tree, dir)
	if err != nil {
		return Machine{}, err
	}
	return m, os.RemoveAll(tree)
}

// checkBootOrder fails if this machine's systemd finds an ordering cycle in the tree.
func (r Runner) checkBootOrder(ctx context.Context, tree string) error {
	policy := filepath.Join(filepath.Dir(tree), "boot-order.hcl")
	if err := os.WriteFile(policy, []byte("check \"image.boot-order\" {}\n"), 0o644); err != nil {
		return err
	}
	command := append(slices.Clone(r.Base.Arch.user), r.Nodegate, "check", "--root", tree, "--policy", policy)
	out, err := runProgram(ctx, prepareTime, nil, command[0], command[1:]...)
	if err != nil {
		return fmt.Errorf("the boot order of the tree: %w", err)
	}
	if strings.Contains(out, "skipped") {
		return fmt.Errorf("the boot order of the tree was not checked:\n%s", out)
	}
	return nil
}

// checkConsoleReport fails if the gate holds the node and the console lacks a complete report of it.
func (r Runner) checkConsoleReport(ctx context.Context, console string) error {
	if !strings.Contains(console, "nodegate: held by ") {
		return nil
	}
	verdicts, err := r.consoleVerdicts(ctx, console)
	if slices.ContainsFunc(verdicts, func(v string) bool { return v != "pass" }) {
		return nil // kernel messages may have split the report of another attempt
	}
	return errors.Join(errors.New("the console lacks a complete report of the gate that holds the node"), err)
}

// consoleVerdicts returns the verdicts of the reports in a console's log, as `nodegate report --console` prints them. The error
// describes incomplete reports.
func (r Runner) consoleVerdicts(ctx context.Context, console string) ([]string, error) {
	command := append(slices.Clone(r.Base.Arch.user), r.Nodegate, "report", "--console", "-", "--format", "json")
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(console), &stdout, &stderr
	if err := cmd.Run(); stdout.Len() == 0 {
		return nil, fmt.Errorf("nodegate report: %w: %s", err, stderr.String())
	}
	var fleet struct{ Nodes []struct{ Verdict string } }
	if err := json.Unmarshal(stdout.Bytes(), &fleet); err != nil {
		return nil, fmt.Errorf("nodegate report: %w", err)
	}
	var verdicts []string
	for _, node := range fleet.Nodes {
		verdicts = append(verdicts, node.Verdict)
	}
	if stderr.Len() > 0 {
		return verdicts, errors.New(stderr.String())
	}
	return verdicts, nil
}

// bootOnce boots once, runs the script, and checks the console. If more boots follow, it reboots cleanly. Otherwise it kills the
// machine, because its disk is not needed any more.
func (r Runner) bootOnce(ctx context.Context, m Machine, b Boot, more bool) error {
	g, err := m.Boot(ctx, b.Cmdline)
	if err != nil {
		return err
	}
	defer g.Kill()
	scriptCtx, cancel := context.WithTimeout(ctx, bootScript)
	out, err := g.Run(scriptCtx, library+b.Script)
	cancel()
	if err != nil {
		return fmt.Errorf("%w\nconsole:\n%s", err, qemu.Tail(g.Console(), 40))
	}
	if said := strings.TrimSpace(out.Stdout); said != "" {
		r.Log("%s", said)
	}
	console := g.Console()
	var wrong []error
	if out.Code != 0 {
		wrong = append(wrong, fmt.Errorf("the script exited with %d:\n%s", out.Code, out.Stderr))
	}
	for _, e := range b.Console {
		wrong = append(wrong, e.Check(console))
	}
	wrong = append(wrong, r.checkConsoleReport(ctx, console))
	if err := errors.Join(wrong...); err != nil {
		lookCtx, cancel := context.WithTimeout(ctx, afterwards)
		defer cancel()
		seen, _ := g.Run(lookCtx, evidence)
		return fmt.Errorf("%w\nthe guest:\n%s\nconsole:\n%s", err, seen.Stdout+seen.Stderr, qemu.Tail(console, 60))
	}
	if more {
		return g.Reboot(ctx)
	}
	return nil
}
