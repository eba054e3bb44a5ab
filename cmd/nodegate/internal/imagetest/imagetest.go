// Package imagetest boots a machine image unchanged, and waits for the verdict of its gate.
package imagetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/host/qemu"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Test describes an image and how to boot it. A test does not write to the image.
type Test struct {
	Image       string
	Firmware    string
	Accelerator string
	Memory      int // MiB
	Processors  int
	Direct      qemu.Direct // for an image without a boot loader
	Policy      []byte      // replaces the image's policy, unless nil
	Boots       int
	Timeout     time.Duration                                         // bounds one boot
	Hold        time.Duration                                         // accept a verdict other than pass after it has lasted this long
	Progress    func(boot int, running time.Duration, console string) // called regularly, unless nil
}

// Outcome is the result of all boots.
type Outcome struct {
	Report  report.Report // from the worst boot; its first result is about the boots
	Passed  int
	NoKVM   string // QEMU's message if KVM could not run the machine, which was then emulated
	Console string // the end of that boot's console if the boot did not reach a verdict
}

// Check is the name of the result that summarises the boots.
const Check = "image.boots"

// noKVM is QEMU's message on a host whose KVM cannot run the machine.
type noKVM string

func (e noKVM) Error() string {
	return "KVM on this host cannot run the machine (" + string(e) + "); emulate it with --accelerator tcg"
}

// Run boots the image t.Boots times. It returns an error if the image could not be tested, or if ctx ended. With qemu.Auto it emulates a
// machine that KVM cannot run.
func (t Test) Run(ctx context.Context) (Outcome, error) {
	out, err := t.run(ctx)
	var words noKVM
	if t.Accelerator != qemu.Auto || !errors.As(err, &words) {
		return out, err
	}
	t.Accelerator = qemu.TCG
	out, err = t.run(ctx)
	out.NoKVM = string(words)
	return out, err
}

func (t Test) run(ctx context.Context) (Outcome, error) {
	machine, undo, err := t.machine()
	if err != nil {
		return Outcome{}, err
	}
	defer undo()
	var worst *boot
	passed := 0
	for n := range t.Boots {
		b, err := t.boot(ctx, machine, n+1)
		if err != nil {
			return Outcome{}, err
		}
		if b.verdict == verdict.Pass {
			passed++
		}
		if worst == nil || worst.verdict == verdict.Pass || worst.verdict == verdict.Unknown && b.verdict == verdict.Fail {
			worst, b.number = &b, n+1
		}
	}
	return t.outcome(*worst, passed), nil
}

// machine returns the machine to boot, and a function that removes its temporary files.
func (t Test) machine() (qemu.Machine, func(), error) {
	format, err := imageFormat(t.Image, t.Direct.Kernel != "")
	if err != nil {
		return qemu.Machine{}, nil, err
	}
	file, err := filepath.Abs(t.Image)
	if err != nil {
		return qemu.Machine{}, nil, err
	}
	accelerator, err := qemu.Accelerator(t.Accelerator)
	if err != nil {
		return qemu.Machine{}, nil, err
	}
	more, err := qemu.Firmware(t.Firmware)
	if err != nil {
		return qemu.Machine{}, nil, err
	}
	in, undo, err := t.installPolicy()
	if err != nil {
		return qemu.Machine{}, nil, err
	}
	processor := "host"
	if accelerator == qemu.TCG {
		processor = "max,la57=off"
	}
	more = append(append(more, in...),
		"-cpu", processor, "-machine", "graphics=off", // makes the firmware use the serial console
		"-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile=")
	return qemu.Machine{
		Accelerator: accelerator, Memory: t.Memory, Processors: t.Processors,
		Disk: qemu.Disk{File: file, Format: format, Throwaway: true}, Direct: t.Direct,
		Ports: []string{host.ReportPort}, More: more,
	}, undo, nil
}

// boot is the result of one boot.
type boot struct {
	observation
	number  int
	verdict verdict.Verdict
	why     string // the reason for the verdict if there is no report
	remedy  string
}

const (
	pollInterval = 200 * time.Millisecond
	grace        = 2 * time.Second // time for the console lines that follow the end of a boot
)

func (t Test) boot(ctx context.Context, m qemu.Machine, number int) (boot, error) {
	r, err := m.Start()
	if err != nil {
		return boot{}, err
	}
	defer r.Kill()
	port := qemu.Record(r.Ports[0])
	began := time.Now()
	limit := time.After(t.Timeout)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var since time.Time // when the current state was first observed
	var last observation
	for {
		over := false
		select {
		case <-ctx.Done():
			return boot{}, context.Cause(ctx)
		case <-r.Ended():
			if err := r.Wait(); err != nil && r.NoKVM() == "" {
				return boot{}, fmt.Errorf("QEMU: %w: %s", err, report.OneLine(strings.TrimSpace(r.Complaints())))
			}
			over = true
		case <-limit:
			return t.judge(observe(r.Console(), port.Text()), true, false), nil
		case <-tick.C:
		}
		if words := r.NoKVM(); words != "" {
			return boot{}, noKVM(words)
		}
		now := observe(r.Console(), port.Text())
		if t.Progress != nil {
			t.Progress(number, time.Since(began), now.last)
		}
		if now.state() != last.state() {
			since = time.Now()
		}
		last = now
		switch lasted := time.Since(since); {
		case over, now.passed(), now.off != "",
			now.ending != "" && lasted > grace,
			now.state() != "" && lasted > t.Hold:
			return t.judge(now, false, over), nil
		}
	}
}

// stillRunning reports whether the gate's message is about a check that is still running. Such a message is not a verdict.
func stillRunning(held string) bool {
	_, duration, found := strings.Cut(held, " has not returned for ")
	return found && !strings.Contains(duration, " ")
}

// judge returns the result for the last observation of a boot.
func (t Test) judge(s observation, late, over bool) boot {
	b := boot{observation: s, verdict: verdict.Fail}
	switch {
	case s.report != nil && t.Policy != nil && !usesTestPolicy(*s.report):
		b.verdict, b.why = verdict.Unknown, fmt.Sprintf("the policy was %s: the image's systemd did not accept another one (systemd 252 "+
			"or later does)",
			strings.Join(s.report.Policy.Files, ", "))
	case s.report != nil:
		b.verdict = s.report.Verdict
	case s.ending != "":
		b.why = s.ending
	case s.held != "":
		b.why = s.held
		if stillRunning(s.held) {
			b.verdict, b.remedy = verdict.Unknown, "if the machine is slow, use a longer --hold"
		}
	case s.off != "":
		b.verdict, b.why = verdict.Unknown, s.off
	case over:
		b.why = "the machine rebooted or shut down before the gate's verdict"
	case late && s.last == "":
		b.verdict, b.why = verdict.Unknown, fmt.Sprintf("silence: nothing on the serial console in %s", t.Timeout)
		b.remedy = "put console=ttyS0 on the image's kernel command line, or try the other --firmware"
	default:
		b.verdict, b.why = verdict.Unknown, fmt.Sprintf("silence: no message from the gate in %s", t.Timeout)
		b.remedy = "install nodegate in the image, and enable kubelet's unit, which runs the gate. If the machine is slow, use a longer " +
			"--timeout. If the console shows no kernel messages, its command line lacks console=ttyS0"
	}
	if late && s.hung != "" && strings.HasPrefix(b.why, "silence") {
		b.why, b.remedy = b.why+"; the kernel reported: "+s.hung, "repeat the test: the image's kernel hung, or QEMU or this host delayed it"
	}
	if b.remedy != "" && s.held == "" && t.Accelerator != qemu.TCG {
		b.remedy += "; if KVM hangs on this host, use --accelerator tcg"
	}
	return b
}

// outcome returns the report of all boots.
func (t Test) outcome(b boot, passed int) Outcome {
	all := report.Result{
		Name: Check, Verdict: b.verdict, Severity: policy.Block, Source: "nodegate image test", Evidence: []checks.Evidence{}, Remedy: b.remedy,
		Want: "the gate passes in " + report.Count(t.Boots, "boot"), Got: fmt.Sprintf("it passes in %d of %d", passed, t.Boots),
	}
	out := Outcome{Passed: passed, Report: report.Report{
		APIVersion: report.APIVersion, Kind: report.KindReport, Node: report.Node{Name: filepath.Base(t.Image)},
		Policy: report.Policy{Files: []string{}}, Stage: string(checks.Boot), Time: time.Now().UTC().Format(time.RFC3339),
	}}
	if b.report != nil {
		out.Report = *b.report
		out.Report.Results = slices.DeleteFunc(slices.Clone(out.Report.Results), func(r report.Result) bool { return r.Name == Check })
	}
	if b.why != "" {
		if t.Boots > 1 {
			b.why = fmt.Sprintf("boot %d: %s", b.number, b.why)
		}
		out.Console = b.excerpt()
		for line := range strings.Lines(out.Console) {
			all.Evidence = append(all.Evidence, checks.Seen("console", strings.TrimSpace(line)))
		}
		if all.Got += "; " + b.why; b.verdict == verdict.Unknown {
			all.Error = b.why
		}
	}
	for _, r := range out.Report.Results {
		if all.Verdict == verdict.Fail && b.why == "" && r.Verdict == verdict.Fail && r.Because == "" && all.Because == "" {
			all.Because = r.Name
		}
	}
	out.Report.Verdict = b.verdict
	out.Report.Results = append([]report.Result{all}, out.Report.Results...)
	return out
}
