package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"nodegate/internal/audit/replay"
	"nodegate/internal/host"
	"nodegate/internal/host/cage"
)

// Results of a rehearsal.
type (
	Rehearsed = replay.Rehearsed
	WouldDo   = cage.Record
)

// Rehearse runs a command in a copy of the node, and returns its effects on packets. The node notices nothing. It needs root.
func Rehearse(ctx context.Context, h *host.Host, args []string, stdin []byte, limit time.Duration) (o Rehearsed, err error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return o, err
	}
	rep := Judge(sets, Options{})
	a, err := replay.NewRehearsal(ctx, question(&rep), args)
	if err != nil {
		return o, err
	}
	a.Self = []string{"/proc/self/exe", host.PacketsCommand, "cage"}
	a.Units, a.Stdin = host.UnitStates(ctx), stdin
	a.Dir, _ = os.Getwd()
	a.Time = limit - time.Since(begun) - limit/20 // to answer
	in, err := json.Marshal(a)
	if err != nil {
		return o, err
	}
	out, err := host.Rehearse(ctx, in, false)
	if err != nil {
		return o, fmt.Errorf("rehearsing in a copy of the node: %w", err)
	}
	if err := json.Unmarshal(out, &o); err != nil {
		return o, fmt.Errorf("reading what the rehearsal showed: %w", err)
	}
	conclude(&o)
	return o, nil
}

// conclude adds the parts that were not tried, and the verdict.
func conclude(o *Rehearsed) {
	for _, list := range []*[]Loss{&o.Lost, &o.Brief} {
		*list = slices.DeleteFunc(*list, func(l Loss) bool {
			excused := l.Taken || namesOutside(&l, l.Flows)
			if excused {
				o.Cut = slices.DeleteFunc(o.Cut, func(cut string) bool {
					return slices.ContainsFunc(l.Flows, func(f Flow) bool { return strings.HasPrefix(cut, f.Name+" (") })
				})
				o.NotTried = append(o.NotTried, fmt.Sprintf("packets %s, which a program of this node or a list of addresses decides about: %s",
					DescribeFlows(l.Flows), Cause(&l)))
			}
			return excused
		})
	}
	if o.Flows == 0 {
		o.NotTried = append(o.NotTried, "no connection passes before the change")
	}
	switch {
	case !o.Ended:
		o.NotTried = append(o.NotTried, "the command had not ended in its time")
	case o.Exit != 0:
		lines := strings.Split(strings.TrimSpace(o.Said), "\n")
		o.NotTried = append(o.NotTried, fmt.Sprintf("the command ended with status %d: %s", o.Exit, lines[len(lines)-1]))
	}
	for _, u := range o.Would.Units {
		switch u.How {
		case cage.NotRun:
			o.NotTried = append(o.NotTried, fmt.Sprintf("%s %s: it would keep running, and does not run here", u.Verb, u.Name))
		case cage.Absent:
			o.NotTried = append(o.NotTried, fmt.Sprintf("%s %s: this node has no such unit", u.Verb, u.Name))
		}
	}
	if o.Left > 0 && !slices.ContainsFunc(o.Would.Units, func(u cage.Unit) bool { return u.How == cage.Ran }) {
		o.NotTried = append(o.NotTried, fmt.Sprintf("what %d processes do that the command left running", o.Left))
	}
	for _, set := range o.Would.Sysctls {
		if strings.HasPrefix(set, "net.") {
			o.NotTried = append(o.NotTried, set+": the machine has one for all its networks")
		}
	}
	refused := regexp.MustCompile(`(?i)message too long|operation not permitted|permission denied|no space left`)
	if said := refused.FindString(o.Said); said != "" {
		o.NotTried = append(o.NotTried, fmt.Sprintf("what the copy refused the command: %q in its output", said))
	}
	for _, dir := range o.Would.Hidden {
		if o.Exit != 0 {
			o.NotTried = append(o.NotTried, dir+": the command could not see it")
		}
	}
	switch o.Verdict = "pass"; {
	case len(o.Lost)+len(o.Brief)+len(o.Cut) > 0:
		o.Verdict = "fail"
	case len(o.NotTried) > 0:
		o.Verdict = "unknown"
	}
}

// rehearse passes a rehearsal on to a user namespace, or does it there.
func rehearse(ctx context.Context, inUser bool, in io.Reader, out io.Writer) error {
	if err := host.Enter(); err != nil {
		return err
	}
	var a replay.Rehearsal
	if err := json.NewDecoder(in).Decode(&a); err != nil {
		return err
	}
	if inUser {
		for i, tree := range a.Outside.Trees {
			a.Outside.Files = append(a.Outside.Files, os.NewFile(uintptr(3+i), tree))
		}
		o, err := a.Run(ctx)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(o)
	}
	var err error
	if a.Outside, err = cage.Look(); err != nil {
		return err
	}
	order, err := json.Marshal(&a)
	if err != nil {
		return err
	}
	answer, err := host.Rehearse(ctx, order, true, a.Outside.Files...)
	if err != nil {
		return err
	}
	_, err = out.Write(answer)
	return err
}

// Cause returns what loses connections after a rehearsed command.
func Cause(l *Loss) string {
	if l.Kind == "" && l.Rule != "" {
		return l.Rule
	}
	if l.Kind == "" {
		return "no rule, route or sysctl that it added alone is the cause: " + l.Flows[0].Why
	}
	return Describe(l)
}
