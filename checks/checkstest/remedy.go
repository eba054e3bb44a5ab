package checkstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// obey runs the commands of a failed case's remedy on a copy of its node, with the case's policy and with the built-in one, each beside
// every problem of the catalog. What passed before must not fail afterwards, and the problem must have another result.
func (c Case) obey(t *testing.T) {
	t.Helper()
	if !strings.Contains(c.Want, "`") {
		return // it passes, or the remedy has no command
	}
	for _, text := range []string{c.Policy + "\ncheck \"" + c.Problem + "\" {}\n", "use \"kubernetes\" {}\n"} {
		asked := Load(t, text)
		for _, name := range catalog.Known().Checks {
			if !slices.ContainsFunc(asked.Problems, func(b policy.Problem) bool { return b.Name == name }) {
				text += "check \"" + name + "\" {}\n"
			}
		}
		node := *c.Node
		node.Files, node.Links, node.Rules = maps.Clone(node.Files), maps.Clone(node.Links), maps.Clone(node.Rules)
		node.Units = map[string][2]string{}
		maps.Copy(node.Units, c.Node.Units)
		for name, l := range node.Links {
			link := *l
			link.Features, node.Links[name] = maps.Clone(l.Features), &link
		}
		inspect := func() map[string]checks.Result {
			all := map[string]checks.Result{}
			for _, r := range checks.Inspect(t.Context(), node.Host(), c.Stage, catalog.For(Load(t, text), c.Stage)).Results {
				all[r.Name] = r
			}
			return all
		}
		before := inspect()
		failed := before[c.Problem]
		if !failed.Differs() {
			continue // the built-in policy requires less
		}
		lines, left := Obey(t, node.Host(), &node, failed.State.Remedy)
		text += lines
		for name, r := range inspect() {
			assert.True(t, !r.Differs() || before[name].Verdict != verdict.Pass && (name != c.Problem || left || r.State.Got != failed.State.Got),
				"after the remedy %q %s is %s", failed.State.Remedy, name, Text(r))
		}
	}
}

// Obey runs the commands of a remedy that change parameters, br_netfilter, links, rules, files and units. It returns the lines for the
// policy, and whether it left out a command. Parameters and links are the host's, the rest is the fake machine's.
func Obey(t *testing.T, h *host.Host, m *hosttest.Machine, remedy string) (lines string, left bool) {
	t.Helper()
	for _, line := range regexp.MustCompile(`remove "([^"]+)" from ([^ :]+):\d+`).FindAllStringSubmatch(remedy, -1) {
		m.Files[line[2]] = strings.Replace(m.Files[line[2]], line[1]+"\n", "", 1)
	}
	for i, quoted := range strings.Split(remedy, "`") {
		if i%2 == 0 {
			continue
		}
		if strings.HasPrefix(quoted, `override "`) || strings.HasPrefix(quoted, `module "`) {
			lines += quoted + "\n"
			continue
		}
		for command := range strings.SplitSeq(quoted, "; ") {
			words := strings.Fields(strings.ReplaceAll(command, "'", ""))
			known, err := change(t.Context(), h, m, words)
			if err != nil {
				t.Errorf("remedy %q: %v", remedy, err)
			}
			left = left || !known
			if words[0] == "sysctl" && strings.Contains(remedy, "to the policy") && !strings.Contains(remedy, "link block") {
				for _, assignment := range words[2:] {
					name, value, _ := strings.Cut(assignment, "=")
					lines += fmt.Sprintf("sysctl %q { value = %q }\n", name, value)
				}
			}
		}
	}
	for _, f := range regexp.MustCompile("create (\\S+) with (?:section )?`?(\\[\\w+\\])`? and `?([^`,]+)").FindAllStringSubmatch(remedy, -1) {
		m.Files[f[1]] = f[2] + "\n" + strings.ReplaceAll(f[3], " ", "\n") + "\n"
	}
	return lines, left
}

// change makes the change of one command, and reports whether it knows the command.
func change(ctx context.Context, h *host.Host, m *hosttest.Machine, words []string) (known bool, err error) {
	if len(words) < 2 { // only the program's name
		return false, nil
	}
	switch words[0] {
	case "sysctl":
		for _, assignment := range words[2:] {
			name, value, _ := strings.Cut(assignment, "=")
			key, bad := policy.ParseKey(name)
			err = errors.Join(err, bad, h.WriteSysctl(string(key), value))
		}
	case "modprobe":
		if words[1] != "br_netfilter" {
			return false, nil
		}
		if _, forbidden, _ := h.Forbidden("6.1.0", words[1]); forbidden {
			return true, errors.New("modprobe.d forbids it")
		}
		m.Files["/sys/module/br_netfilter/initstate"] = "live\n"
		m.Sysctl("net/bridge/bridge-nf-call-iptables", "1")
	case "echo":
		if to, appends := strings.CutPrefix(words[len(words)-1], ">>"); appends {
			m.Files[to] += strings.Join(words[1:len(words)-1], " ") + "\n"
		} else {
			err = h.Files.Write(to, []byte(words[1]+"\n"))
		}
	case "ip":
		if words[1] != "link" || words[2] != "set" {
			return false, nil
		}
		err = h.Links.Set(ctx, words[4], "mtu", map[string]string{"": words[6]})
	case "ethtool":
		for i := 3; i < len(words); i += 2 {
			err = errors.Join(err, h.Links.Set(ctx, words[2], "offload", map[string]string{words[i]: words[i+1]}))
		}
	case "systemctl":
		if words[1] != "disable" {
			return false, nil
		}
		for _, unit := range words[3:] { // after --now
			m.Units[unit] = [2]string{"inactive", "disabled"}
			for name, text := range m.Files { // its process ends
				if dir, is := strings.CutSuffix(name, "/cgroup"); is && strings.Contains(text, "/"+unit) {
					maps.DeleteFunc(m.Files, func(name, _ string) bool { return strings.HasPrefix(name, dir+"/") })
				}
			}
		}
	case "iptables", "ip6tables", "iptables-nft", "ip6tables-nft", "iptables-legacy":
		return changeRules(m, words) && m.Packets == "", nil // what packets show is recorded
	default:
		return false, nil
	}
	return true, err
}

// changeRules makes the change of an iptables command in the rules of the machine, and reports whether it did.
func changeRules(m *hosttest.Machine, words []string) bool {
	table := "filter"
	if len(words) < 3 { // only the program's name
		return false
	}
	if words[1] == "-t" {
		table, words = words[2], slices.Delete(words, 1, 3)
	}
	rule, changed := strings.Join(words[2:], " ")+"\n", false
	for program, save := range m.Rules {
		head, rest, found := strings.Cut(save, "*"+table+"\n")
		if !found || !strings.HasPrefix(program, words[0]) {
			continue
		}
		after := rest
		switch words[1] {
		case "-D":
			after = strings.Replace(rest, "-A "+rule, "", 1)
		case "-I":
			after = strings.Replace(rest, "-A "+words[2], "-A "+rule+"-A "+words[2], 1)
		case "-P":
			after = regexp.MustCompile("(?m)^:"+words[2]+` \w+`).ReplaceAllString(rest, ":"+words[2]+" "+words[3])
		}
		changed = changed || after != rest
		m.Rules[program] = head + "*" + table + "\n" + after
	}
	return changed
}
