package compare

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// NFTResult is the comparison of a table with the form that fits it best.
type NFTResult struct {
	expect.NFTForm // Min and Max are the releases that the rules allow
	List           []Difference
	Unknown        []string            // of a form that is not known: a later release may write them, so they are no difference
	Unused         []*ruleset.NFTChain // chains of Services that nothing leads to
}

type nftDiffer struct {
	differ
	m       *model.NFT
	form    expect.NFTForm
	fit     expect.NFTForm // the best so far
	visited []bool         // by Index
	values  *regexp.Regexp // of a rule
	some    *regexp.Regexp // conditions that only some first packets meet
}

// DiffNFT compares a table with the forms. Without services, it compares only what Services share.
func DiffNFT(m *model.NFT, forms []expect.NFTForm, services bool) NFTResult {
	least, d := 0, nftDiffer{m: m, visited: make([]bool, len(m.Chains)),
		some:   regexp.MustCompile(`\b(ct st|mark|limit|quota|set|oif|tcp flags)`),
		values: regexp.MustCompile(`([a-z]+)-[A-Z2-7]{8}-\S+|\b(?:tcp|udp|sctp)\b|\[?[0-9a-f]*[.:][0-9a-f.:/\]]+|\b\d+\b`)}
	for i, f := range forms {
		d.form, d.list = f, nil
		d.compareShared(forms)
		n := 0
		if f.Inline && m.Single != m.Choices && f.Single != (m.Single > m.Choices) {
			n++
		}
		for _, u := range d.list {
			n += 1 + len(u.missing) + len(u.extra)
		}
		switch {
		case i == 0 || n < least:
			d.fit, least = f, n
		case n == least:
			d.fit.Max = f.Max
		}
	}
	d.form = d.fit
	d.list = nil
	for again := true; again; {
		d.compareShared(forms)
		for i := 0; services && i < len(m.Ports); i++ {
			d.compareService(m.Ports[i])
		}
		if again = d.counts == nil && slices.ContainsFunc(d.list, func(u Difference) bool { return u.extra != nil }); again {
			d.countAgain()
		}
	}
	r := NFTResult{NFTForm: d.form}
	r.List, r.Unknown = d.judge()
	whole := func(u Difference) bool { return !u.Own && (u.Empty || u.Missing == u.Extra) }
	if !services || slices.ContainsFunc(r.List, whole) {
		return r
	}
	if r.List = append(r.List, d.elements(len(r.List) > 0)...); slices.ContainsFunc(r.List, whole) {
		return r
	}
	for i, c := range m.Chains {
		if kind, _ := model.NFTServiceChain(c.Name); kind != "" && !d.visited[i] && len(c.Rules) > 0 {
			r.Unused = append(r.Unused, c)
		}
	}
	return r
}

// compareShared compares what does not depend on Services. Objects of other forms do not count: no version deletes them.
func (d *nftDiffer) compareShared(forms []expect.NFTForm) {
	d.other = 0
	known := map[string]bool{}
	for _, f := range forms {
		for _, w := range f.Shared(d.m) {
			known[w.Name] = true
		}
	}
	for _, c := range d.m.Chains {
		if c.Hook != "" && !known[c.Name] {
			d.other += 2
		}
	}
	for _, w := range d.form.Shared(d.m) {
		d.compare(nil, w.Name, w.Rules, !strings.HasPrefix(w.Name, "filter-"), 0)
	}
	for _, name := range d.form.Sets(d.m) {
		if d.m.Sets[name] == nil {
			d.list = append(d.list, Difference{Name: name})
		}
	}
	for _, u := range d.list {
		if len(u.extra) > 0 && strings.HasPrefix(u.extra[0].text, "hook ") {
			d.other++
		}
	}
}

func (d *nftDiffer) compareService(p *model.NFTPort) {
	all, local, external := expect.Uses(p)
	dispatch := func(use, local bool, kind string, list []model.Endpoint) {
		if !use {
			return
		}
		endpoints := make([]model.Endpoint, 0, len(list))
		seen := make(map[string]bool, len(list))
		for _, e := range list {
			if !seen[e.Address] && e.Address != "" {
				seen[e.Address], endpoints = true, append(endpoints, e)
			}
		}
		d.compare(p, p.Chain(kind), d.form.Dispatch(d.m, p, local, endpoints), true, 0)
		for _, e := range endpoints {
			c := d.m.Chain(e.Chain)
			if e.Chain == "" || c != nil && d.visited[c.Index] && d.counts == nil {
				continue
			}
			d.compare(p, e.Chain, d.form.Endpoint(d.m, p, e.Chain, e.Address), true, e.Chance)
			set := model.AffinitySet(e.Chain)
			if s := d.m.Sets[set]; p.Affinity && (s == nil || s.Timeout != p.AffinitySeconds) {
				u := Difference{Own: true, Service: p.Name, Name: set}
				if s != nil {
					u.missing = []rule{{text: fmt.Sprint("timeout ", p.AffinitySeconds)}}
					u.extra = []rule{{text: fmt.Sprint("timeout ", s.Timeout), line: s.Line, handle: s.Handle}}
				}
				d.list = append(d.list, u)
			}
		}
	}
	dispatch(all, false, "service", p.Endpoints)
	dispatch(local, true, "local", p.LocalEndpoints)
	if external {
		d.compare(p, p.Chain("external"), d.form.External(d.m, p), true, 0)
	}
	if p.External != nil && len(p.Outside) == 0 && p.Node == "" {
		d.visited[p.External.Index] = false
	}
	if c := p.Firewall; c != nil && (len(c.Rules) > 0 || slices.ContainsFunc(p.Outside, func(a model.NFTAddress) bool { return a.Ranged })) {
		d.compare(p, c.Name, d.form.Firewall(d.m, p), true, 0)
	}
}

// compare compares a chain with rules, as multisets, and if ordered also their order.
func (d *nftDiffer) compare(p *model.NFTPort, name string, want []string, ordered bool, share float64) {
	u := Difference{Name: name, Share: share, kind: nftKind(name)}
	if p != nil {
		u.Own, u.Service = true, p.Name
	}
	c := d.m.Chain(name)
	if c == nil {
		d.list = append(d.list, u)
		return
	}
	d.visited[c.Index] = true
	same := d.counts == nil && c.Hook == "" && len(want) == len(c.Rules)
	for i := 0; same && i < len(want); i++ {
		same = want[i] == expect.NFTText(c.Rules[i])
	}
	if same {
		return
	}
	u.Line, u.Handle, u.Empty = c.Line, c.Handle, len(c.Rules) == 0
	var have []string
	var at [][2]int
	if c.Hook != "" {
		have, at = append(have, expect.NFTHook(c.Hook, c.Priority, c.Policy)), append(at, [2]int{c.Line, c.Handle})
	}
	for _, r := range c.Rules {
		if text := expect.NFTText(r); text != "" && !strings.HasSuffix(text, "log") { // else it has no effect on packets
			have, at = append(have, text), append(at, [2]int{r.Line, r.Handle})
		}
	}
	rules := func(texts []string, of []int) (list []rule) {
		for _, i := range of {
			r := rule{text: texts[i]}
			if d.counts != nil {
				r.shape, r.takes = d.shape(name, r.text), d.takes(r.text)
			}
			list = append(list, r)
		}
		return list
	}
	missing, extra := subtract(want, have)
	u.missing, u.extra = rules(want, missing), rules(have, extra)
	for k, i := range extra {
		u.extra[k].line, u.extra[k].handle = at[i][0], at[i][1]
	}
	for i := 0; ordered && i < len(want) && len(missing)+len(extra) == 0 && !u.Order; i++ {
		if want[i] != have[i] && !strings.Contains(want[i], " saddr @affinity-") {
			u.Missing, u.Order = want[i], true
		}
	}
	for i := 0; d.counts != nil && i < len(want); i++ {
		d.count(0, d.shape(name, want[i]))
	}
	d.add(u)
}

// takes reports whether a rule takes some first packets from the rules behind it.
func (d *nftDiffer) takes(text string) bool {
	last := text[strings.LastIndexByte(text, ' ')+1:]
	return slices.Contains([]string{"drop", "reject", "accept", "return"}, last) && !d.some.MatchString(text)
}

func nftKind(chain string) string {
	kind, _ := model.NFTServiceChain(chain)
	if kind == "local" {
		return "service"
	}
	return cmp.Or(kind, chain)
}

// shape returns a rule without names, addresses and numbers.
func (d *nftDiffer) shape(chain, text string) string {
	return nftKind(chain) + ": " + d.values.ReplaceAllString(text, "$1#")
}

// elements compares the elements of maps and sets. An element that belongs to no Service may be the consequence of another difference.
func (d *nftDiffer) elements(before bool) (list []Difference) {
	want, owners, seen := map[string][]string{}, map[string][]*model.NFTPort{}, map[string]bool{}
	for _, p := range d.m.Ports {
		if p.Reached || p.Serves {
			expect.Elements(p, func(set, key, value string) {
				if !seen[set+key] {
					seen[set+key] = true
					want[set], owners[set] = append(want[set], key+value), append(owners[set], p)
				}
			})
		}
		for _, e := range slices.Concat(p.Endpoints, p.LocalEndpoints) {
			ip, port := model.SplitAddress(e.Address)
			seen[ip+" . "+ip+" . "+p.Protocol+" . "+port] = d.form.Inline
		}
	}
	var strays []Difference
	unnamed := map[string]bool{} // addresses of Services whose names are too long for a comment
	for _, set := range d.form.Sets(d.m)[:6] {
		s := d.m.Sets[set]
		if len(s.Elements) == 0 && len(want[set]) > 1 {
			return []Difference{{Name: set, Missing: want[set][0], Empty: true, Line: s.Line, Handle: s.Handle}}
		}
		have := make([]string, len(s.Elements))
		for i, e := range s.Elements {
			if have[i] = strings.TrimSpace(e.String() + " " + e.Verdict); e.Target != "" {
				have[i] += " goto " + e.Target
			}
		}
		missing, extra := subtract(want[set], have)
		for _, i := range missing {
			list = append(list, Difference{Own: true, Service: owners[set][i].Name, Name: set, Missing: want[set][i], Line: s.Line,
				Handle: s.Handle})
		}
		for _, i := range extra {
			e := &s.Elements[i]
			f := Difference{Name: set, Extra: have[i], Line: s.Line, Handle: s.Handle}
			if p, _ := d.m.Owner(e); p != nil {
				f.Own, f.Service = true, p.Name
				list = append(list, f)
			} else if strings.HasPrefix(set, "no-endpoint-") {
				unnamed[e.Key[0]] = true
			} else if !unnamed[e.Key[0]] {
				strays = append(strays, f)
			}
		}
	}
	if before || len(list) > 0 {
		return list
	}
	for _, e := range d.m.Elements("hairpin-connections") { // which endpoints are of this node, only the API knows
		if d.form.Inline && !seen[e.String()] {
			strays = append(strays, Difference{Name: "hairpin-connections", Extra: e.String()})
		}
	}
	return strays[:min(len(strays), 1)]
}
