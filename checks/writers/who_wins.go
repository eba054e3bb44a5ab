package writers

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// ownFile is what `nodegate install` writes.
const ownFile = "/etc/sysctl.d/99-zz-nodegate.conf"

// whoWins: a parameter is written by more than one file, and the last one wins.
func whoWins() checks.Problem {
	return checks.Problem{
		Name: "sysctl.who-wins", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "A file of sysctl.d, /etc/sysctl.conf or TuneD's profile sets a parameter of the policy to another value, and wins.",
		Symptom: "The node is right after nodegate ran, and wrong after the next boot, or after a package ran `sysctl --system`.",
		How: "All sysctl.d directories are read as systemd-sysctl reads them at boot, and as `sysctl --system` does later (then " +
			"/etc/sysctl.conf comes last); the line that wins is compared with the policy. Where TuneD runs, so is what its active profile " +
			"(with include=) writes and, with reapply_sysctl, neither /run/sysctl.d, /etc/sysctl.d nor /etc/sysctl.conf writes after it.",
		Remedy:   "take the line out, or let `nodegate install` write " + ownFile,
		TradeOff: "",
		Ref:      "https://man7.org/linux/man-pages/man5/sysctl.d.5.html",
		Inspect:  inspectWhoWins,
	}
}

func inspectWhoWins(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("the policy's values win")
	boot, reload, err := sysctlFiles(h)
	if err != nil {
		return s, err
	}
	late, err := leftToApply(h)
	if err != nil {
		return s, err
	}
	tuned, tunedErr := tunedWrites(ctx, h)
	var keys, got, remedies []string
	for _, want := range p.Sysctls {
		if want.Value == "" || want.Key.IsGlob() {
			continue
		}
		key := string(want.Key)
		keys = append(keys, key)
		atBoot, _ := boot.Winner(key, otherNames(key)...)
		later, _ := reload.Winner(key, otherNames(key)...)
		lost := losing(want, atBoot, "at boot")
		if atBoot == later {
			lost = losing(want, atBoot, "at boot and at sysctl --system")
		} else {
			lost = append(lost, losing(want, later, "at sysctl --system")...)
		}
		if !late[want.Key] {
			got = append(got, lost...)
		}
		for _, w := range winners(atBoot, later) {
			said := checks.Seen(w.At(), policy.Key(w.Key).String()+" = "+w.Value)
			if agrees(want, w) {
				s.Evidence = append(s.Evidence, said)
				continue
			}
			if late[want.Key] {
				said.Text += "; the policy wants " + want.Value + " by a fact of this node, and `nodegate apply` sets it later"
				s.Evidence = append(s.Evidence, said)
				continue
			}
			// A lost value comes first: a person looks for that.
			said.Text += "; the policy wants " + want.Value + overruled(boot, reload, key, want)
			s.Evidence = slices.Insert(s.Evidence, len(remedies), said)
			remedies = append(remedies, "take \""+policy.Key(w.Key).String()+" = "+w.Value+"\" out of "+w.At())
		}
		w, loses := tunedLoss(want, tuned)
		said := checks.Seen(w.At(), "TuneD writes "+policy.Key(w.Key).String()+" = "+w.Value+"; the policy wants "+want.Value)
		switch {
		case loses && w.If != "":
			said.Text += "; whether it does depends on " + w.If
			s.Evidence = append(s.Evidence, said)
		case loses:
			got = append(got, want.Key.String()+"="+w.Value+" by TuneD")
			s.Evidence = slices.Insert(s.Evidence, len(remedies), said)
			remedies = append(remedies, "take it out of "+w.At()+", or write \""+want.Key.String()+" = "+want.Value+"\" to a file in "+
				"/etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0")
		}
	}
	if keys == nil {
		s.Skip = "the policy has no parameter with one exact value"
		return s, nil
	}
	writers, err := runtimeWriters(ctx, h, p)
	s.Evidence = append(s.Evidence, writers...)
	if err = errors.Join(err, tunedErr); err != nil {
		// The verdict on the files stands without it.
		s.Evidence = append(s.Evidence, checks.Seen("other writers", "not known: "+err.Error()))
	}
	if got != nil {
		s.Differs(strings.Join(got, ", "), strings.Join(remedies, "; "))
	}
	return s, nil
}

// leftToApply returns the parameters that install left out of its file, because the requirement depends on a fact: none of the files
// is to have the policy's value.
func leftToApply(h *host.Host) (map[policy.Key]bool, error) {
	text, err := h.Files.ReadFile(ownFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, host.ErrNotRecorded) {
		return nil, err
	}
	late := map[policy.Key]bool{}
	for line := range strings.Lines(string(text)) {
		said, is := strings.CutPrefix(line, "# ")
		name, rest, _ := strings.Cut(said, ": ")
		if key, err := policy.ParseKey(name); is && err == nil && strings.Contains(rest, "; only `nodegate apply` ") {
			late[key] = true
		}
	}
	return late, nil
}

// losing names the parameter where a line wins against the policy. A parameter
// that no file sets is not lost: nodegate-apply sets it.
func losing(want policy.Sysctl, w config.Setting, when string) []string {
	if w.File == "" || agrees(want, w) {
		return nil
	}
	return []string{want.Key.String() + "=" + w.Value + " " + when}
}

func agrees(want policy.Sysctl, w config.Setting) bool {
	return strings.Join(strings.Fields(w.Value), " ") == strings.Join(strings.Fields(want.Value), " ")
}

// winners returns the lines that win, each once.
func winners(boot, later config.Setting) []config.Setting {
	all := []config.Setting{boot, later}
	return slices.DeleteFunc(slices.Compact(all), func(w config.Setting) bool { return w.File == "" })
}

// overruled names the last line that agrees with the policy and lost.
func overruled(boot, reload config.Sysctls, key string, want policy.Sysctl) string {
	for _, w := range slices.Backward(slices.Concat(boot.Setters(key), reload.Setters(key))) {
		if agrees(want, w) {
			return ", as " + w.At() + " says"
		}
	}
	return ""
}

// otherNames returns the other names under which the kernel has the same parameter.
func otherNames(key string) []string {
	switch key {
	case "net/ipv4/ip_forward":
		return []string{"net/ipv4/conf/all/forwarding"}
	case "net/ipv4/conf/all/forwarding":
		return []string{"net/ipv4/ip_forward"}
	case "net/netfilter/nf_conntrack_max":
		return []string{"net/nf_conntrack_max"}
	case "net/nf_conntrack_max":
		return []string{"net/netfilter/nf_conntrack_max"}
	}
	return nil
}

// sysctlFiles returns what systemd-sysctl applies at boot, and `sysctl --system` later.
func sysctlFiles(h *host.Host) (boot, reload config.Sysctls, err error) {
	if boot, err = config.SystemdSysctls(h.Files); err == nil {
		reload, err = config.ProcpsSysctls(h.Files)
	}
	return boot, reload, err
}
