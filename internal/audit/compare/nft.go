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

// NFTDifference is a place where a table differs from the one that kube-proxy writes. Without Missing and Extra, the place is missing.
type NFTDifference struct {
	Port           *model.NFTPort // nil for what Services share
	Name           string         // of the chain, the set or the map
	Missing, Extra string         // the first rule or element that is missing, or that kube-proxy does not write here
	Line, Handle   int            // of the extra rule, or of the place
	Empty, Order   bool           // the place is empty; Missing comes too late
	Share          float64        // of the Service's connections; 0 if not known

	missing, extra []string
	lines          [][2]int // of extra
}

// NFTResult is the comparison of a table with the form that fits it best.
type NFTResult struct {
	expect.NFTForm // Min and Max are the releases that the rules allow
	List           []NFTDifference
	Unknown        []string            // of a form that is not known: a later release may write them, so they are no difference
	Unused         []*ruleset.NFTChain // chains of Services that nothing leads to
}

type nftDiffer struct {
	m       *model.NFT
	form    expect.NFTForm
	fit     expect.NFTForm // the best so far
	list    []NFTDifference
	visited []bool             // by Index
	counts  map[string]*[3]int // of the second pass, by shape: wanted, missing, extra
	kinds   map[string]int     // chains of each kind
	unsure  bool               // some rule has a shape that is not known
	values  *regexp.Regexp     // of a rule
	other   int                // base chains of another form
}

// DiffNFT compares a table with the forms. Without services, it compares only what Services share.
func DiffNFT(m *model.NFT, forms []expect.NFTForm, services bool) NFTResult {
	least, d := 0, nftDiffer{m: m, visited: make([]bool, len(m.Chains)),
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
	for again := true; again; {
		d.list = nil
		d.compareShared(forms)
		for i := 0; services && i < len(m.Ports); i++ {
			d.compareService(m.Ports[i])
		}
		if again = d.counts == nil && slices.ContainsFunc(d.list, func(u NFTDifference) bool { return u.extra != nil }); again {
			d.counts, d.kinds = map[string]*[3]int{}, map[string]int{}
		}
	}
	for _, u := range d.list {
		d.unsure = d.unsure || slices.ContainsFunc(u.extra, func(text string) bool { return !d.isKnown(u.Name, text, strings.Clone) })
	}
	r := NFTResult{NFTForm: d.form}
	r.List, r.Unknown = d.judge()
	whole := func(u NFTDifference) bool { return u.Port == nil && (u.Empty || u.Missing == u.Extra) }
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
			d.list = append(d.list, NFTDifference{Name: name})
		}
	}
	for _, u := range d.list {
		if len(u.extra) > 0 && strings.HasPrefix(u.extra[0], "hook ") {
			d.other++
		}
	}
}

func (d *nftDiffer) compareService(p *model.NFTPort) {
	all, local, external := expect.Uses(p)
	dispatch := func(use, local bool, kind string, list []string) {
		if !use {
			return
		}
		endpoints := make([]string, 0, len(list))
		seen := make(map[string]bool, len(list))
		for _, e := range list {
			if !seen[e] && d.m.NFTEndpoint(p, e) != "" {
				seen[e], endpoints = true, append(endpoints, e)
			}
		}
		d.compare(p, p.Chain(kind), d.form.Dispatch(d.m, p, local, endpoints), true, 0)
		for _, e := range endpoints {
			c := d.m.Chain(e)
			if !strings.HasPrefix(e, "endpoint-") || c != nil && d.visited[c.Index] && d.counts == nil {
				continue
			}
			d.compare(p, e, d.form.Endpoint(d.m, p, e, d.m.NFTEndpoint(p, e)), true, 1/float64(len(list)))
			if s := d.m.Sets[model.AffinitySet(e)]; p.Affinity && (s == nil || s.Timeout != p.Seconds) {
				u := NFTDifference{Port: p, Name: model.AffinitySet(e)}
				if s != nil {
					u.missing, u.extra = []string{fmt.Sprint("timeout ", p.Seconds)}, []string{fmt.Sprint("timeout ", s.Timeout)}
					u.lines = [][2]int{{s.Line, s.Handle}}
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
	if p.External != nil && len(p.Outside) == 0 && p.NodePort == "" {
		d.visited[p.External.Index] = false
	}
	if c := p.Firewall; c != nil && (len(c.Rules) > 0 || slices.ContainsFunc(p.Outside, func(a model.NFTAddress) bool { return a.Ranged })) {
		d.compare(p, c.Name, d.form.Firewall(d.m, p), true, 0)
	}
}

// compare compares a chain with rules, as multisets, and if ordered also their order.
func (d *nftDiffer) compare(p *model.NFTPort, name string, want []string, ordered bool, share float64) {
	u := NFTDifference{Port: p, Name: name, Share: share}
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
	var lines [][2]int
	if c.Hook != "" {
		have, lines = append(have, expect.NFTHook(c.Hook, c.Priority, c.Policy)), append(lines, [2]int{c.Line, c.Handle})
	}
	for _, r := range c.Rules {
		if text := expect.NFTText(r); text != "" && !strings.HasSuffix(text, "log") { // else it has no effect on packets
			have, lines = append(have, text), append(lines, [2]int{r.Line, r.Handle})
		}
	}
	missing, extra := subtract(want, have)
	for _, i := range missing {
		u.missing = append(u.missing, want[i])
	}
	for _, i := range extra {
		u.extra, u.lines = append(u.extra, have[i]), append(u.lines, lines[i])
	}
	for i := 0; ordered && i < len(want) && len(missing)+len(extra) == 0 && !u.Order; i++ {
		if want[i] != have[i] && !strings.Contains(want[i], " saddr @affinity-") {
			u.Missing, u.Order = want[i], true
		}
	}
	if d.counts != nil {
		d.kinds[nftKind(name)]++
		for n, list := range [][]string{want, u.missing, u.extra} {
			for _, text := range list {
				key := d.shape(name, text)
				for _, key := range slices.Compact([]string{key, anyNumber(key)}) {
					if d.counts[key] == nil {
						d.counts[key] = &[3]int{}
					}
					d.counts[key][n]++
				}
			}
		}
	}
	if len(u.missing)+len(u.extra) > 0 || u.Order {
		d.list = append(d.list, u)
	}
}

// subtract returns the indexes of what only one of two multisets has.
func subtract(want, have []string) (missing, extra []int) {
	count := make(map[string]int, len(want))
	for _, text := range want {
		count[text]++
	}
	for i, text := range have {
		if count[text]--; count[text] < 0 {
			extra = append(extra, i)
		}
	}
	for i, text := range want {
		if count[text]--; count[text] >= 0 {
			missing = append(missing, i)
		}
	}
	return missing, extra
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

// anyNumber returns a shape for any number of endpoints. Some forms differ only for one.
func anyNumber(shape string) string {
	return strings.Replace(shape, "{ one endpoint }", "{ # endpoints }", 1)
}

// isKnown reports whether kube-proxy writes rules of this shape into such chains.
func (d *nftDiffer) isKnown(chain, text string, key func(string) string) bool {
	n := d.counts[key(d.shape(chain, text))]
	return n != nil && n[0] > 0 || strings.HasPrefix(text, "hook ") || strings.HasPrefix(text, "timeout ")
}

// judge separates faults from forms that are not known. A rule that is missing is a fault if most of its shape are there, or if nothing
// has an unknown shape. A rule that kube-proxy does not write is a fault if it has a shape that kube-proxy writes there, if it takes
// packets from the rules behind it, if it is an altered missing rule, or if most other Services have the rule in its place.
func (d *nftDiffer) judge() (list []NFTDifference, unknown []string) {
	for i := range d.list {
		u := &d.list[i]
		for k, text := range u.extra {
			if !d.isFault(u, text) {
				unknown = append(unknown, text)
			} else if u.Extra == "" {
				u.Extra, u.Line, u.Handle = text, u.lines[k][0], u.lines[k][1]
			}
		}
	}
	if d.other > 1 {
		unknown = append(unknown, "the base chains")
	}
	for _, u := range d.list {
		base := strings.HasPrefix(u.Name, "filter-") || strings.HasPrefix(u.Name, "nat-")
		for _, text := range u.missing {
			if u.Missing == "" && (len(unknown) == 0 || d.stands(u.Name, text)) {
				u.Missing = text
			}
		}
		gone := u.missing == nil && u.extra == nil && !u.Order && (len(unknown) == 0 || u.Port != nil)
		if (gone || u.Missing != "" || u.Extra != "") && (!base || d.other < 2) {
			list = append(list, u)
		}
	}
	return list, unknown
}

func (d *nftDiffer) isFault(u *NFTDifference, text string) bool {
	words := strings.Fields(text)
	takes := slices.Contains([]string{"drop", "reject", "accept", "return"}, words[len(words)-1]) &&
		!regexp.MustCompile(`\b(ct st|mark|limit|quota|set|oif|tcp flags)`).MatchString(text)
	n := d.counts[anyNumber(d.shape(u.Name, text))]
	few := n == nil || 2*n[2] <= max(d.kinds[nftKind(u.Name)], 2)
	gone := func(missing string) bool { // no chain has a rule of its shape, which is another
		key := d.shape(u.Name, missing)
		n := d.counts[key]
		return n != nil && n[0] == n[1] && anyNumber(key) != anyNumber(d.shape(u.Name, text))
	}
	altered := func(missing string) bool {
		m := strings.Fields(missing)
		return (u.Port == nil || few) && 2*len(words) >= len(m) && within(words, m) ||
			few && len(words) == len(m)+1 && within(m, words) ||
			text == strings.TrimSuffix(missing, " fully-random")+" random" ||
			u.Port != nil && d.stands(u.Name, missing)
	}
	return !d.unsure || takes || d.isKnown(u.Name, text, anyNumber) && !slices.ContainsFunc(u.missing, gone) ||
		slices.ContainsFunc(u.missing, altered) || u.missing == nil && u.Port != nil && 2*n[2] <= d.kinds[nftKind(u.Name)]
}

// within reports whether b has the words of a in their order.
func within(a, b []string) bool {
	i := 0
	for _, w := range b {
		if i < len(a) && a[i] == w {
			i++
		}
	}
	return i == len(a)
}

// stands reports whether most rules of a shape are there.
func (d *nftDiffer) stands(name, text string) bool {
	n := d.counts[d.shape(name, text)]
	return n != nil && 2*n[1] < n[0]
}

// elements compares the elements of maps and sets. An element that belongs to no Service may be the consequence of another difference.
func (d *nftDiffer) elements(before bool) (list []NFTDifference) {
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
			ip, port := model.SplitAddress(d.m.NFTEndpoint(p, e))
			seen[ip+" . "+ip+" . "+p.Protocol+" . "+port] = d.form.Inline
		}
	}
	var strays []NFTDifference
	unnamed := map[string]bool{} // addresses of Services whose names are too long for a comment
	for _, set := range d.form.Sets(d.m)[:6] {
		s := d.m.Sets[set]
		if len(s.Elements) == 0 && len(want[set]) > 1 {
			return []NFTDifference{{Name: set, Missing: want[set][0], Empty: true, Line: s.Line, Handle: s.Handle}}
		}
		have := make([]string, len(s.Elements))
		for i, e := range s.Elements {
			if have[i] = strings.TrimSpace(e.String() + " " + e.Verdict); e.Target != "" {
				have[i] += " goto " + e.Target
			}
		}
		missing, extra := subtract(want[set], have)
		for _, i := range missing {
			list = append(list, NFTDifference{Port: owners[set][i], Name: set, Missing: want[set][i], Line: s.Line, Handle: s.Handle})
		}
		for _, i := range extra {
			e := &s.Elements[i]
			f := NFTDifference{Name: set, Extra: have[i], Line: s.Line, Handle: s.Handle}
			if f.Port, _ = d.m.Owner(e); f.Port != nil {
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
			strays = append(strays, NFTDifference{Name: "hairpin-connections", Extra: e.String()})
		}
	}
	return strays[:min(len(strays), 1)]
}
