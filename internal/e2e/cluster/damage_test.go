//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// damage is one change that another program makes to the rules of a live kube-proxy.
type damage struct {
	what    string
	command []string
	service string // the Service that audit must name; "" if the fault concerns all Services
}

// TestDamage changes the rules of a live kube-proxy in one place after another: a rule or element lost, a mark, probability, protocol or
// address wrong. audit must fail each time and name the Service, and pass once the rules are back. Without LONG it tries twenty of each
// backend, picked at random, because each audit also sends packets. With LONG it tries them with an older kube-proxy too, and changes that
// harm nothing.
func TestDamage(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	all := map[string]*Service{}
	for name, protocol := range map[string]string{"web": "TCP", "media": "SCTP", "near": "TCP", "balanced": "TCP", "empty": "UDP", "sticky": "TCP"} {
		s, err := c.AddService(t.Context(), name, protocol)
		require.NoError(t, err)
		all[name] = s
	}
	for name, spec := range map[string]object{
		"web": {"type": "NodePort", "externalIPs": []string{"203.0.113.1"}}, "near": {"type": "NodePort", "externalTrafficPolicy": "Local"},
		"balanced": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": []string{"198.51.100.0/24"}},
		"empty":    {"type": "NodePort", "externalIPs": []string{"203.0.113.2"}},
		"sticky":   {"sessionAffinity": "ClientIP"},
	} {
		var ingress []object
		if name == "balanced" {
			ingress = []object{{"ip": "192.0.2.7"}}
		}
		require.NoError(t, all[name].Patch(t.Context(), spec, ingress))
	}
	proxies := map[string]string{"": ""}
	if os.Getenv("LONG") != "" {
		older, err := Build(t.Context(), CacheDir(repositoryRoot(t)), Older, []string{"kube-proxy"})
		require.NoError(t, err)
		proxies["older-"] = older
	}
	for name, bin := range proxies {
		c.ProxyBin = bin
		for _, b := range Backends() {
			t.Run(name+string(b), func(t *testing.T) { tryDamages(t, c, binary, b, all) })
		}
	}
}

// tryDamages makes the changes on a new node.
func tryDamages(t *testing.T, c *ControlPlane, binary string, b Backend, all map[string]*Service) {
	t.Helper()
	n := addNode(t, c, b)
	for name, s := range all {
		if s.Node = n.Name; name == "near" {
			s.Node = "node-elsewhere"
		}
		if name != "empty" && len(s.Ready) == 0 {
			s.replaceEndpoints()
		}
		require.NoError(t, s.Update(t.Context()))
	}
	untilAudit(t, n, binary, "before any damage", "pass")
	rules := n.healthyRules(t)
	n.restore(t, rules) // from then on nft's handles are always the same
	const some, enough = 20, 40
	list := n.damages(t, rules)
	require.True(t, len(list) >= enough, "only %d damages: this tests too little", len(list))
	tried := slices.Clone(list)
	if os.Getenv("LONG") == "" {
		rand.Shuffle(len(tried), func(i, j int) { tried[i], tried[j] = tried[j], tried[i] })
		tried = tried[:some]
	}
	for _, d := range tried {
		n.auditDamage(t, binary, rules, d, "--once")
		n.restore(t, rules)
	}
	t.Logf("%d of %d damages", len(tried), len(list))
	untilAudit(t, n, binary, "and back", "pass")
	if os.Getenv("LONG") != "" {
		n.auditHarmless(t, binary)
	}
	last := list[slices.IndexFunc(list, func(d damage) bool { return d.service == "default/web" })]
	n.auditDamage(t, binary, rules, last) // followed until it has settled
	n.restore(t, rules)
	untilAudit(t, n, binary, "at the end", "pass")
	if b != NFTables {
		return // kube-proxy notices within 30 s that its canaries are gone
	}
	a := n.auditDamage(t, binary, rules, damage{what: "everything lost", command: strings.Fields("nft flush ruleset")})
	assert.True(t, slices.Contains(a.Accusations(), "kubeproxy.rules.deleted"), "everything lost: %s", a.Said())
}

// auditHarmless adds rules of other programs that lose nothing of the cluster, one after the other: each audit must pass.
func (n *ProxyNode) auditHarmless(t *testing.T, binary string) {
	t.Helper()
	program := "iptables-nft"
	if n.Backend != NFTables {
		program = string(n.Backend)
	}
	for _, rule := range []string{
		"INPUT -p tcp --dport 22 -j ACCEPT", "INPUT -s 192.0.2.0/24 -j DROP", "FORWARD -s 198.51.100.99 -j DROP", "OUTPUT -p tcp --dport 25 -j REJECT",
		"INPUT -m limit --limit 5/min -j LOG", "PREROUTING -t nat -p tcp --dport 2222 -j REDIRECT --to-ports 22",
		"POSTROUTING -t nat -s 172.17.0.0/16 -j MASQUERADE", "PREROUTING -t mangle -p tcp --dport 9999 -j MARK --set-xmark 0x1/0x1",
		"PREROUTING -t raw -p udp --dport 4789 -j NOTRACK",
	} {
		require.NoError(t, n.Shell(t.Context(), program+" -w -I "+rule))
		a, err := n.Audit(t.Context(), binary)
		require.NoError(t, err)
		assert.True(t, a.Verdict == "pass", "%s: %s", rule, a.Said())
		require.NoError(t, n.Shell(t.Context(), program+" -w -D "+rule))
	}
}

// healthyRules returns kube-proxy's rules in the form that restore reads.
func (n *ProxyNode) healthyRules(t *testing.T) string {
	t.Helper()
	command := []string{string(n.Backend) + "-save"}
	if n.Backend == NFTables {
		command = strings.Fields("nft list table ip kube-proxy")
	}
	text, err := n.Output(t.Context(), command[0], command[1:]...)
	require.NoError(t, err)
	return text
}

// auditDamage damages the rules and audits. The audit must fail and name the Service, unless a sync of kube-proxy mended the rules
// before they were read, or the audit knows nothing: then they are damaged once more.
func (n *ProxyNode) auditDamage(t *testing.T, binary, rules string, d damage, args ...string) (a Audit) {
	t.Helper()
	for range 3 {
		_, err := n.Output(t.Context(), d.command[0], d.command[1:]...)
		if err == nil {
			a, err = n.Audit(t.Context(), binary, args...)
		}
		switch {
		case err == nil && a.Verdict == "fail" && (d.service == "" || failureEvidence(a, d.service+" ") != ""):
			return a
		case err == nil && a.Verdict != "unknown" && !n.restored(t, rules):
			t.Errorf("%s: want a failure of %q, got %s", d.what, d.service, a.Said())
			return a
		}
		t.Logf("%s: damaged once more after %v, %s", d.what, err, a.Said())
		n.restore(t, rules)
	}
	t.Errorf("%s: damaged three times, want a failure of %q, got %s", d.what, d.service, a.Said())
	return a
}

// restored reports whether kube-proxy's rules are the healthy ones again. kube-proxy writes them in any order, and times and counters
// change.
func (n *ProxyNode) restored(t *testing.T, rules string) bool {
	t.Helper()
	sorted := func(text string) []string {
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "#") || strings.HasPrefix(line, ":") })
		slices.Sort(lines)
		return lines
	}
	return slices.Equal(sorted(n.healthyRules(t)), sorted(rules))
}

func (n *ProxyNode) restore(t *testing.T, rules string) {
	t.Helper()
	script := `printf %s "$1" | "$2-restore" -w 30` // kube-proxy may be writing
	if n.Backend == NFTables {
		script = `{ echo "add table ip kube-proxy; delete table ip kube-proxy"; printf %s "$1"; } | nft -f -`
	}
	require.NoError(t, n.Shell(t.Context(), script, rules, string(n.Backend)))
}

// namedPort matches the Service port that a rule or an element names.
var namedPort = regexp.MustCompile(`default/([a-z]+)(?:/(?:tcp|udp|sctp)/([a-z]*)|:([a-z]+))?`)

func namedService(text string) string {
	m := namedPort.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	if m[2]+m[3] != "" {
		return "default/" + m[1] + ":" + m[2] + m[3]
	}
	return "default/" + m[1]
}

func (n *ProxyNode) damages(t *testing.T, rules string) []damage {
	t.Helper()
	if n.Backend != NFTables {
		return damagedRules(rules, strings.TrimSuffix(string(n.Backend), "-save"))
	}
	listing, err := n.Output(t.Context(), "nft", "-j", "-a", "list", "table", "ip", "kube-proxy")
	require.NoError(t, err)
	return damagedElements(t, listing)
}

// damagedRules returns the loss of each rule that names a Service, and wrong values in the rules of web and media.
func damagedRules(rules, program string) []damage {
	var list []damage
	table := ""
	rule := regexp.MustCompile(`"[^"]*"|\S+`)
	lines := map[string]int{} // rules of each chain of a table so far
	wrong := map[string]string{"--probability": "0.12345", "-p": "udp", "--to-destination": "10.9.9.9:99", "-d": "10.96.9.9/32", "--set-xmark": "0x8000/0x8000"}
	for _, l := range strings.Split(rules, "\n") {
		if name, ok := strings.CutPrefix(l, "*"); ok {
			table = name
		}
		words := rule.FindAllString(l, -1)
		if len(words) == 0 || words[0] != "-A" {
			continue
		}
		for i := range words {
			words[i] = strings.Trim(words[i], `"`)
		}
		lines[table+words[1]]++
		number := fmt.Sprint(lines[table+words[1]])
		service := namedService(l)
		if service == "" && words[1] != "KUBE-MARK-MASQ" && words[1] != "KUBE-POSTROUTING" ||
			strings.Contains(l, "nfacct") || strings.Contains(l, "will be dropped by") {
			continue // nothing but a counter or a comment is lost
		}
		if !strings.Contains(l, "kubernetes:https") {
			list = append(list, damage{"lost: " + l, []string{program, "-w", "-t", table, "-D", words[1], number}, service})
		}
		for i, w := range words {
			value := wrong[w]
			if value == "" || w == "-p" && strings.Contains(l, "DNAT") || service != "" && service != "default/web" && service != "default/media" ||
				w == "-p" && table == "nat" && slices.Contains(words, "--dport") {
				continue // iptables refuses a match of another protocol
			}
			changed := slices.Clone(words[2:])
			changed[i-1] = value
			list = append(list, damage{"wrong " + w + ": " + l,
				append([]string{program, "-w", "-t", table, "-R", words[1], number}, changed...), service})
		}
	}
	return list
}

// damagedElements returns the loss of each rule and element that names a Service, and of shared rules.
func damagedElements(t *testing.T, listing string) []damage {
	t.Helper()
	var doc struct{ Nftables []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(listing), &doc))
	const table = "ip kube-proxy "
	var list []damage
	for _, o := range doc.Nftables {
		var kinds map[string]struct {
			Name, Chain string
			Handle      int
			Elem        []any
		}
		require.NoError(t, json.Unmarshal(o, &kinds))
		if r, ok := kinds["rule"]; ok && !strings.Contains(string(o), "unallocated ClusterIPs") {
			list = append(list, damage{"lost: " + string(o),
				strings.Fields("nft delete rule " + table + r.Chain + " handle " + fmt.Sprint(r.Handle)), namedService(r.Chain)})
		}
		m := kinds["map"]
		for _, e := range m.Elem {
			text, err := json.Marshal(e)
			require.NoError(t, err)
			key := regexp.MustCompile(`"concat":\[([^]]*)\]`).FindStringSubmatch(string(text))
			if key == nil || strings.Contains(m.Name, "localhost") {
				continue
			}
			words := strings.ReplaceAll(strings.ReplaceAll(key[1], `"`, ""), ",", " . ")
			list = append(list, damage{fmt.Sprintf("lost: %s of %s", text, m.Name),
				[]string{"nft", "delete element ip kube-proxy " + m.Name + " { " + words + " }"}, namedService(string(text))})
		}
	}
	return list
}
