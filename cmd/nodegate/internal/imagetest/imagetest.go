// Package imagetest boots a machine image as it will ship, and waits for its gate's verdict.
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

// Test is an image, and how it is booted. Nothing is written to the image.
type Test struct {
	Image       string
	Firmware    string
	Accelerator string
	Memory      int // MiB
	Processors  int
	Direct      qemu.Direct // for an image without a boot loader
	Policy      []byte      // in force instead of the image's; nil leaves that
	Boots       int
	Timeout     time.Duration                                         // of one boot
	Hold        time.Duration                                         // for so long a verdict other than pass may still change
	Progress    func(boot int, running time.Duration, console string) // nil, or is told now and then
}

// Outcome is what all boots came to.
type Outcome struct {
	Report  report.Report // of the first boot that did not pass, else of the last; its first result is about the boots
	Passed  int
	NoKVM   string // QEMU's words, where the machine was emulated because KVM could not run it
	Console string // how that boot ended on its console, where it came to no verdict
}

// Check is the name of the result about the boots.
const Check = "image.boots"

// noKVM is the error of a host whose KVM cannot run the machine: QEMU's words.
type noKVM string

func (e noKVM) Error() string {
	return "KVM on this host cannot run the machine (" + string(e) + "): --accelerator tcg emulates it"
}

// Run boots the image again and again. An error says that it could not be tested, or that ctx ended. With qemu.Auto a machine that KVM
// cannot run is emulated.
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

// machine returns what is booted, and what removes the files that it needs.
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
	in, undo, err := t.inForce()
	if err != nil {
		return qemu.Machine{}, nil, err
	}
	processor := "host"
	if accelerator == qemu.TCG {
		processor = "max,la57=off"
	}
	more = append(append(more, in...),
		"-cpu", processor, "-machine", "graphics=off", // the firmware speaks on the serial console
		"-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile=")
	return qemu.Machine{
		Accelerator: accelerator, Memory: t.Memory, Processors: t.Processors,
		Disk: qemu.Disk{File: file, Format: format, Throwaway: true}, Direct: t.Direct,
		Ports: []string{host.ReportPort}, More: more,
	}, undo, nil
}

// boot is what became of one boot.
type boot struct {
	seen
	number  int
	verdict verdict.Verdict
	why     string // where there is no report that says it
	remedy  string
}

const (
	look  = 200 * time.Millisecond
	grace = 2 * time.Second // for the lines that follow the one that says how a boot ends
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
	tick := time.NewTicker(look)
	defer tick.Stop()
	var since time.Time // when what was seen last was seen first
	var last seen
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
			return t.judge(see(r.Console(), port.Text()), true, false), nil
		case <-tick.C:
		}
		if words := r.NoKVM(); words != "" {
			return boot{}, noKVM(words)
		}
		now := see(r.Console(), port.Text())
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

// unfinished reports whether the gate's words are about a check that still runs: they are no verdict.
func unfinished(held string) bool {
	_, duration, found := strings.Cut(held, " has not returned for ")
	return found && !strings.Contains(duration, " ")
}

// judge returns the verdict on what was seen last.
func (t Test) judge(s seen, late, over bool) boot {
	b := boot{seen: s, verdict: verdict.Fail}
	switch {
	case s.report != nil && t.Policy != nil && !inForce(*s.report):
		b.verdict, b.why = verdict.Unknown, fmt.Sprintf("the policy was %s: the image's systemd took no other (252 and later does)",
			strings.Join(s.report.Policy.Files, ", "))
	case s.report != nil:
		b.verdict = s.report.Verdict
	case s.ending != "":
		b.why = s.ending
	case s.held != "":
		b.why = s.held
		if unfinished(s.held) {
			b.verdict, b.remedy = verdict.Unknown, "a slow machine needs a longer --hold"
		}
	case s.off != "":
		b.verdict, b.why = verdict.Unknown, s.off
	case over:
		b.why = "the machine restarted or switched itself off before its gate's verdict"
	case late && s.last == "":
		b.verdict, b.why = verdict.Unknown, fmt.Sprintf("silence: nothing on the serial console in %s", t.Timeout)
		b.remedy = "put console=ttyS0 on the image's kernel command line, or try the other --firmware"
	default:
		b.verdict, b.why = verdict.Unknown, fmt.Sprintf("silence: the gate said nothing in %s", t.Timeout)
		b.remedy = "is nodegate installed in the image, and does kubelet start at boot? The gate speaks then. A slow machine needs a longer " +
			"--timeout; where the kernel is not on the console, its command line lacks console=ttyS0"
	}
	if late && s.hung != "" && strings.HasPrefix(b.why, "silence") {
		b.why, b.remedy = b.why+"; the kernel said: "+s.hung, "boot it again: the image's kernel hung, or QEMU or this host held it up"
	}
	if b.remedy != "" && s.held == "" && t.Accelerator != qemu.TCG {
		b.remedy += "; or KVM hangs on this host: try --accelerator tcg"
	}
	return b
}

// outcome makes the report of all boots.
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
