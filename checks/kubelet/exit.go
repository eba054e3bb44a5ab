package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// exit: kubelet has exited after the gate has passed.
func exit() checks.Problem {
	return checks.Problem{
		Name: "kubelet.exit", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true, Announced: true,
		Concurrent: true,
		Detects:    "kubelet has exited by itself, and systemd restarts it.",
		Symptom:    "The node never becomes Ready, or flaps; nodegate logs \"node proven\" every few seconds.",
		How: "systemd has restarted the policy's gate unit since its last manual start (NRestarts), or the unit has failed, and it has " +
			"not been up for two minutes. Starts that the gate held do not count: the unit's journal shows that its main process never " +
			"started. Neither do starts before the last change of the unit's file or drop-ins, for example before the gate was installed. " +
			"The check is skipped before kubeadm join. It reports the exit status, kubelet's own error from that journal, and a remedy for " +
			"about 70 known errors. It leaves out values from files that only root may read. At kubelet's start the gate prints it and lets " +
			"kubelet start, because only kubelet can decide. Otherwise the check warns after the first two exits, and fails from the third.",
		Remedy: exitRemedyUnknown,
		Ref:    "https://kubernetes.io/docs/tasks/debug/debug-cluster/#looking-at-logs",
		Inspect: func(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
			return inspectExit(ctx, h, p, time.Now())
		},
	}
}

const (
	loopRestarts = 3
	stableTime   = 2 * time.Minute
)

func inspectExit(ctx context.Context, h *host.Host, p *policy.Policy, now time.Time) (checks.State, error) {
	s := checks.Passing("kubelet keeps running")
	c, err := h.Units.Crashes(ctx, p.Gate.Unit)
	if errors.Is(err, host.ErrNotRecorded) {
		s.Skip = "this snapshot does not record exits"
		return s, nil
	}
	if c.Active == "inactive" || c.Active == "deactivating" {
		s.Skip = p.Gate.Unit + " does not run"
	}
	if err != nil || s.Skip != "" || c.Active == "active" && now.Sub(c.Since).Abs() >= stableTime {
		return s, err
	}
	// NRestarts also counts starts that a control process ended (service_enter_restart() in systemd's
	// src/core/service.c). Other checks report why the gate holds.
	ends := c.Restarts - c.Held - c.Earlier
	if c.Active == "failed" && c.Restarts == 0 && c.Exit != "" { // systemd does not restart it
		ends = 1
	}
	unknown := c.Exit == "" && c.Line == "" // the journal cannot be read, so the gate may have held the starts
	switch {
	case ends > 0 && (ends >= loopRestarts || !unknown):
	case c.Restarts == 0 && c.Active != "active":
		s.Skip = "kubelet has not run yet"
		return s, nil
	case c.Restarts == 0:
		return s, nil
	default:
		text := fmt.Sprintf("%s, restarted %d times; the gate or another ExecStartPre= held all recent starts", c.Active, c.Restarts)
		if c.Earlier > 0 {
			text = fmt.Sprintf("%s, restarted %d times, %d of them before its unit file or a drop-in changed", c.Active, c.Restarts, c.Earlier)
		}
		if s.Evidence = []checks.Evidence{checks.Seen(p.Gate.Unit, text)}; c.Active != "active" {
			s.Skip = text
		}
		return s, nil
	}
	k, _ := h.Kubelet() // kubelet.config reports an error
	if before, err := isBeforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	how := cmp.Or(c.Exit, "unknown exit status")
	s.Evidence = []checks.Evidence{checks.Seen(p.Gate.Unit, fmt.Sprintf("%s, restarted %d times, last %s", c.Active, c.Restarts, how))}
	if c.Line != "" {
		s.Evidence = append(s.Evidence, checks.Seen("journalctl -u "+p.Gate.Unit, c.Line))
		how += ": " + kubeletError(c.Line)
	}
	s.Differs("kubelet exited: "+how, findExitRemedy(how))
	if ends >= loopRestarts {
		s.Got = "kubelet keeps exiting: " + how
	}
	s.Minor = ends < loopRestarts
	return s, nil
}

// kubeletError returns the error in a line of kubelet's log, without the header and the quotes of klog or the fields of its JSON format.
func kubeletError(line string) string {
	var fields struct{ Msg, Err string }
	if json.Unmarshal([]byte(line), &fields) != nil {
		line = regexp.MustCompile(`^[IWEF]\d{4} \S+ +\d+ \S+\.go:\d+\] `).ReplaceAllString(line, "")
		m := regexp.MustCompile(`^("(?:[^"\\]|\\.)*")(?: .*?)?\berr=("(?:[^"\\]|\\.)*"|<.*)`).FindStringSubmatch(line)
		if m == nil {
			return line
		}
		fields.Msg, fields.Err = unquote(m[1]), unquote(m[2])
	}
	if fields.Msg == "command failed" {
		return fields.Err
	}
	return strings.TrimSuffix(fields.Msg+": "+fields.Err, ": ")
}

// unquote returns a value of klog: a Go string, or several lines between < and >.
func unquote(value string) string {
	if text, err := strconv.Unquote(value); err == nil {
		return text
	}
	return strings.TrimSpace(strings.Trim(value, "<>"))
}
