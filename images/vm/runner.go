package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nodegate/internal/host/qemu"
	"nodegate/internal/report"
)

const (
	prepareTime = 5 * time.Minute
	bootScript  = 20 * time.Minute // one boot script, its deliberate waits included
	afterwards  = time.Minute
)

// library is put before every boot script.
const library = ". /opt/vm/lib.sh\n"

// evidence is asked for where a boot script failed.
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
	Nodegate string // the binary, static
	Scratch  string // a folder for trees, disks and logs; the caller removes it
	Log      func(format string, args ...any)
}

// Run runs one scenario to its end or to its first failure, which the error describes with what is needed to understand
// it. No QEMU is left behind either way.
func (r Runner) Run(ctx context.Context, s Scenario) (err error) {
	dir, err := os.MkdirTemp(r.Scratch, s.Name+"-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := r.machine(ctx, s, dir)
	if err != nil {
		return err
	}
	return r.boots(ctx, m, s.Boots)
}

func (r Runner) boots(ctx context.Context, m Machine, boots []Boot) error {
	for i, boot := range boots {
		began := time.Now()
		if err := r.boot(ctx, m, boot, i+1 < len(boots)); err != nil {
			return fmt.Errorf("boot %d of %d: %w", i+1, len(boots), err)
		}
		r.Log("boot %d of %d took %.0f s", i+1, len(boots), time.Since(began).Seconds())
	}
	return nil
}

// machine prepares a tree and makes the disk.
func (r Runner) machine(ctx context.Context, s Scenario, dir string) (Machine, error) {
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
	out, err := run(ctx, prepareTime, env, command[0], command[1:]...)
	if err != nil {
		return Machine{}, fmt.Errorf("preparing the tree: %w", err)
	}
	if out != "" {
		r.Log("prepared:\n%s", out)
	}
	m, err := r.Base.MakeMachine(ctx, tree, dir)
	if err != nil {
		return Machine{}, err
	}
	return m, os.RemoveAll(tree)
}

// lastWords wants the report of a gate that holds a node on its console, whole.
func lastWords(console string) error {
	if !strings.Contains(console, "nodegate: held by ") {
		return nil
	}
	reports, err := report.DecodeConsole("the console", strings.NewReader(console))
	for _, r := range reports {
		if r.Verdict != report.Pass {
			return nil // the lines of another attempt may be torn by the kernel's own
		}
	}
	return errors.Join(errors.New("the console has no last words of the gate that holds the node"), err)
}

// boot boots once, runs the script, and compares the console. With more to come it ends with a clean reboot, otherwise
// the machine is killed: what is on the disk then is of no more interest.
func (r Runner) boot(ctx context.Context, m Machine, b Boot, more bool) error {
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
		wrong = append(wrong, fmt.Errorf("the script left with %d:\n%s", out.Code, out.Stderr))
	}
	for _, e := range b.Console {
		wrong = append(wrong, e.Check(console))
	}
	wrong = append(wrong, lastWords(console))
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
