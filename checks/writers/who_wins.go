package writers

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// ownFile is the file that `nodegate install` writes.
const ownFile = "/etc/sysctl.d/99-zz-nodegate.conf"

// whoWins: several files set one parameter, and the last one wins.
func whoWins() checks.Problem {
	return checks.Problem{
		Name: "sysctl.who-wins", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn, Weighs: true,
		Detects: "A file in sysctl.d, /etc/sysctl.conf or TuneD's profile sets a parameter of the policy to a " +
			"value that the policy does not allow, and takes precedence.",
		Symptom: "The node is right after nodegate ran, and wrong after the next boot or after a package ran `sysctl --system`.",
		How: "Reads all sysctl.d directories as systemd-sysctl does at boot and as `sysctl --system` does later (where " +
			"/etc/sysctl.conf comes last), and compares the winning line with the policy's value, bounds or choices. net.nf_conntrack_max is " +
			"net.netfilter.nf_conntrack_max. If TuneD runs, also reads the values of its " +
			"active profile (with include=), unless reapply_sysctl makes /run/sysctl.d, /etc/sysctl.d or /etc/sysctl.conf override them.",
		Remedy:  "remove the line, or run `nodegate install`, which writes " + ownFile,
		Ref:     "https://man7.org/linux/man-pages/man5/sysctl.d.5.html",
		Inspect: inspectWhoWins,
	}
}

func inspectWhoWins(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("the policy's values win")
	boot, reload, err := sysctlFiles(h)
	if err != nil {
		return s, err
	}
	late, err := parametersLeftToApply(h)
	if err != nil {
		return s, err
	}
	tuned, tunedErr := tunedSettings(ctx, h, reload)
	var keys, got, remedies []string
	var wrong []config.Setting // lines to remove
	for _, want := range p.Sysctls {
		if want.Key.IsGlob() {
			continue
		}
		key := string(want.Key)
		late := late[want.Key] && want.Value != "" // install leaves every bound and choice to apply; `sysctl --system` undoes it
		keys = append(keys, key)
		atBoot, _ := boot.Winner(key, otherNames(key)...)
		later, _ := reload.Winner(key, otherNames(key)...)
		lost := describeLoss(want, atBoot, "at boot")
		if atBoot == later {
			lost = describeLoss(want, atBoot, "at boot and at sysctl --system")
		} else {
			lost = append(lost, describeLoss(want, later, "at sysctl --system")...)
		}
		if !late {
			got = append(got, lost...)
		}
		for _, w := range uniqueWinners(atBoot, later) {
			said := checks.Seen(w.At(), policy.Key(w.Key).String()+" = "+w.Value)
			if want.Allows(w.Value) {
				s.Evidence = append(s.Evidence, said)
				continue
			}
			if late {
				said.Text += "; the policy wants " + want.Want() + " depending on a fact of this node; `nodegate apply` sets it later"
				s.Evidence = append(s.Evidence, said)
				continue
			}
			// Overridden values come first, because a reader looks for them.
			said.Text += "; the policy wants " + want.Want() + describeOverruled(boot, reload, key, want)
			s.Evidence = slices.Insert(s.Evidence, len(wrong)+len(remedies), said)
			wrong = append(wrong, w)
		}
		for _, w := range findTunedLosses(want, tuned) {
			said := checks.Seen(w.At(), "TuneD writes "+policy.Key(w.Key).String()+" = "+w.Value+"; the policy wants "+want.Want())
			if w.If != "" {
				said.Text += "; this depends on " + w.If
				s.Evidence = append(s.Evidence, said)
				continue
			}
			got = append(got, want.Key.String()+"="+w.Value+" by TuneD")
			s.Evidence = slices.Insert(s.Evidence, len(wrong)+len(remedies), said)
			remedies = append(remedies, "remove it from "+w.At()+", or add \""+want.Key.String()+" = "+want.Target(w.Value)+"\" to a file in "+
				"/etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0")
		}
	}
	if keys == nil {
		s.Skip = "the policy has no sysctl"
		return s, nil
	}
	writers, err := runtimeWriters(ctx, h, p)
	s.Evidence = append(s.Evidence, writers...)
	if err = errors.Join(err, tunedErr); err != nil {
		// The verdict on the files does not need it.
		s.Evidence = append(s.Evidence, checks.Seen("other writers", "unknown: "+err.Error()))
	}
	if got != nil {
		s.Differs(strings.Join(got, ", "), strings.Join(append(removals(wrong), remedies...), "\n"))
	}
	return s, nil
}

// removals returns one remedy for each file.
func removals(lines []config.Setting) (remedies []string) {
	var files []string
	for _, l := range lines {
		files = append(files, l.File)
	}
	for i, file := range files {
		if slices.Index(files, file) < i {
			continue
		}
		var texts, numbers []string
		for _, l := range lines {
			if l.File == file {
				texts = append(texts, "\""+policy.Key(l.Key).String()+" = "+l.Value+"\"")
				numbers = append(numbers, strconv.Itoa(l.Line))
			}
		}
		remedies = append(remedies, "remove "+strings.Join(texts, ", ")+" from "+file+":"+strings.Join(numbers, ","))
	}
	return remedies
}

// parametersLeftToApply returns the parameters that install left out of its file because their
// requirement depends on a fact: no file is expected to contain the policy's value.
func parametersLeftToApply(h *host.Host) (map[policy.Key]bool, error) {
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

// describeLoss names the parameter if a line overrides the policy. A parameter that no file sets is
// not lost: nodegate-apply sets it.
func describeLoss(want policy.Sysctl, w config.Setting, when string) []string {
	if w.File == "" || want.Allows(w.Value) {
		return nil
	}
	return []string{want.Key.String() + "=" + w.Value + " " + when}
}

// uniqueWinners returns the winning lines without duplicates.
func uniqueWinners(boot, later config.Setting) []config.Setting {
	all := []config.Setting{boot, later}
	return slices.DeleteFunc(slices.Compact(all), func(w config.Setting) bool { return w.File == "" })
}

// describeOverruled names the last line that agrees with the policy and was overridden.
func describeOverruled(boot, reload config.Sysctls, key string, want policy.Sysctl) string {
	for _, w := range slices.Backward(slices.Concat(boot.Setters(key), reload.Setters(key))) {
		if want.Allows(w.Value) {
			return ", as in " + w.At()
		}
	}
	return ""
}

// otherNames returns the aliases of a kernel parameter.
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

// sysctlFiles returns the settings that systemd-sysctl applies at boot, and `sysctl --system`
// later.
func sysctlFiles(h *host.Host) (boot, reload config.Sysctls, err error) {
	if boot, err = config.SystemdSysctls(h.Files); err == nil {
		reload, err = config.ProcpsSysctls(h.Files)
	}
	return boot, reload, err
}
