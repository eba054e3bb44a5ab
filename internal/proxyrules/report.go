package proxyrules

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/verdict"
)

// Judgment is the outcome of Judge.
type Judgment struct {
	Mode     string       `json:"mode"` // "iptables", "nftables", "ipvs", or empty when the input has no rules of kube-proxy
	Version  VersionRange `json:"version"`
	Services []Service    `json:"services"`
	Findings []Finding    `json:"findings"`
	Notes    []string     `json:"notes,omitempty"` // of the reading

	Families  map[string]bool `json:"-"` // that were judged
	NodePorts map[string]bool `json:"-"` // families in which the rules answer node ports at some address

	// What a live kube-proxy is asked where rules do not say enough; nil: there is none to ask.
	Listening     func() (map[uint16]bool, error) `json:"-"` // TCP ports that it listens on; nil where it is not there
	NoExternalIPs func() bool                     `json:"-"` // reports whether it is configured to serve no externalIPs (1.36)
	// Wrote reports whether its metrics say that it has written the rules of a family since it started; known is false where they do not.
	Wrote func(family string) (wrote, known bool) `json:"-"`

	whole *Judgment // of which this is one Service; nil: of itself
	ipvs  *ipvs     // nil: not in IPVS mode, or not read
}

// all returns the report that this is one Service of.
func (r *Judgment) all() *Judgment {
	if r.whole != nil {
		return r.whole
	}
	return r
}

// Finding is one broken invariant with its evidence.
type Finding struct {
	Name    string          `json:"name"` // dotted, lower case, stable: of a Kind
	Verdict verdict.Verdict `json:"verdict"`
	Service string          `json:"service,omitempty"` // ns/name[:port]
	Family  string          `json:"family,omitempty"`  // "ip" or "ip6"
	Table   string          `json:"table,omitempty"`
	Chain   string          `json:"chain,omitempty"`
	Line    int             `json:"line,omitempty"`   // in the input
	Handle  int             `json:"handle,omitempty"` // nftables: as `nft -a` prints it
	Rule    string          `json:"rule,omitempty"`
	Means   string          `json:"-"` // to somebody who does not know the rules, where the message is about one
	Message string          `json:"message"`
	Remedy  string          `json:"remedy,omitempty"`
	Ref     string          `json:"ref,omitempty"`
}

// Says returns what the finding means, and what was seen.
func (f *Finding) Says() string {
	if f.Means == "" {
		return f.Message
	}
	return f.Means + " (" + f.Message + ")"
}

// Service is one port of a Service as the rules have it.
type Service struct {
	Name            string          `json:"name"` // ns/name[:port]
	Protocol        string          `json:"protocol"`
	Family          string          `json:"family"` // "ip" or "ip6"
	ClusterIP       string          `json:"clusterIP,omitempty"`
	Port            int             `json:"port,omitempty"`
	NodePort        int             `json:"nodePort,omitempty"`
	ExternalIPs     []string        `json:"externalIPs,omitempty"`
	LoadBalancerIPs []string        `json:"loadBalancerIPs,omitempty"`
	SourceRanges    []string        `json:"sourceRanges,omitempty"`  // which alone may use the load balancer's addresses
	InternalLocal   bool            `json:"internalLocal,omitempty"` // internalTrafficPolicy Local
	ExternalLocal   bool            `json:"externalLocal,omitempty"` // externalTrafficPolicy Local
	Blocked         string          `json:"blocked,omitempty"`       // "reject" or "drop": ClusterIP traffic without endpoints
	AffinitySeconds int             `json:"affinitySeconds,omitempty"`
	Masquerade      string          `json:"masquerade,omitempty"` // of ClusterIP traffic: "all", "not from 100.96.0.0/11", or none
	Chains          []string        `json:"chains,omitempty"`
	Endpoints       []Endpoint      `json:"endpoints,omitempty"`      // any node's
	LocalEndpoints  []Endpoint      `json:"localEndpoints,omitempty"` // this node's, for policy Local
	Verdict         verdict.Verdict `json:"verdict"`
	Findings        []string        `json:"findings,omitempty"` // names of the findings about it

	servers []virtualServer // IPVS mode: the ClusterIP's first
}

// Endpoint is one place that a Service's connections go to.
type Endpoint struct {
	Address string  `json:"address"` // ip:port
	Chain   string  `json:"chain,omitempty"`
	Chance  float64 `json:"chance"` // of a new connection, given all rules before it
	Line    int     `json:"line,omitempty"`
}

// Conclude puts findings in the place of those that the report has, and judges its Services by them.
func (r *Judgment) Conclude(findings []Finding) {
	r.Findings = append([]Finding{}, findings...)
	for i := range r.Services {
		r.Services[i].Findings = nil
	}
	r.finish()
}

// Own copies what the report's strings are parts of: it keeps nothing of the rules that it was made from, 12 MB for 50,000 endpoints.
func (r *Judgment) Own() {
	each := func(do func(*string)) {
		all := func(list []string) {
			for i := range list {
				do(&list[i])
			}
		}
		for i := range r.Services {
			s := &r.Services[i]
			for _, text := range []*string{&s.Name, &s.Protocol, &s.Family, &s.ClusterIP, &s.Blocked, &s.Masquerade} {
				do(text)
			}
			for _, list := range [][]string{s.ExternalIPs, s.LoadBalancerIPs, s.SourceRanges, s.Chains, s.Findings} {
				all(list)
			}
			for _, list := range [][]Endpoint{s.Endpoints, s.LocalEndpoints} {
				for k := range list {
					do(&list[k].Address)
					do(&list[k].Chain)
				}
			}
		}
		for i := range r.Findings {
			f := &r.Findings[i]
			for _, text := range []*string{&f.Service, &f.Family, &f.Table, &f.Chain, &f.Rule, &f.Means, &f.Message} {
				do(text)
			}
		}
	}
	size := 0
	each(func(text *string) { size += len(*text) })
	var b strings.Builder
	b.Grow(size)
	each(func(text *string) {
		at := b.Len()
		b.WriteString(*text)
		*text = b.String()[at:]
	})
}

// Broken returns the Service ports that the report has findings about.
func (r *Judgment) Broken() map[ServicePort]bool {
	ports := map[ServicePort]bool{}
	for i := range r.Findings {
		ports[Of(&r.Findings[i])] = true
	}
	return ports
}

// State is what the rules have of a Service port, in one line: it changes when kube-proxy writes anything else.
func (r *Judgment) State(p ServicePort) string {
	if r.ipvs != nil {
		return r.ipvs.state(p)
	}
	var b strings.Builder
	for i := range r.Services {
		s := &r.Services[i]
		if s.Name != p.Name || s.Family != p.Family {
			continue
		}
		fmt.Fprint(&b, s.Protocol, s.ClusterIP, s.Port, s.NodePort, s.ExternalIPs, s.LoadBalancerIPs, s.SourceRanges, s.InternalLocal,
			s.ExternalLocal, s.Blocked, s.AffinitySeconds)
		for _, list := range [][]Endpoint{s.Endpoints, s.LocalEndpoints} {
			var addresses []string
			for _, e := range list {
				addresses = append(addresses, e.Address)
			}
			slices.Sort(addresses)
			fmt.Fprint(&b, addresses)
		}
	}
	return b.String()
}

// StaleIn returns the Service whose rules still send to an endpoint that the API
// has no longer; "" where there is none.
func (r *Judgment) StaleIn(endpoint netip.AddrPort, api *Endpoints) string {
	for _, s := range r.Services {
		if !slices.Contains(s.Findings, "kubeproxy.truth.endpoint-stale") && !slices.Contains(s.Findings, "kubeproxy.truth.service-stale") {
			continue
		}
		for _, e := range slices.Concat(s.Endpoints, s.LocalEndpoints) {
			if e.Address == endpoint.String() && !api.Has(endpoint.String()) {
				return s.Name
			}
		}
	}
	return ""
}

// hasher recomputes the hashes in chain names without an allocation for each.
type hasher struct {
	in  []byte
	out [16]byte
}

// sum16 returns the first 16 base32 characters of the SHA-256 of the joined parts; the next call overwrites them.
//
// It is the suffix of KUBE-SVC-, KUBE-SVL-, KUBE-EXT-, KUBE-FW- and (until 1.23) KUBE-XLB- chains: of a Service port, spelled
// `ns/name[:port]` (until 1.18 an unnamed port keeps its colon), and the protocol in lower case. Of KUBE-SEP- chains: of these and the
// endpoint, `ip:port` or `[ip]:port`. In nftables mode the eight characters before a name are the first of its hash: of
// `ns/name/proto/port`, or of that with `__ip/port` for an endpoint (in IPv6 addresses `.` for `:`).
func (h *hasher) sum16(parts ...string) []byte {
	h.in = h.in[:0]
	for _, p := range parts {
		h.in = append(h.in, p...)
	}
	sum := sha256.Sum256(h.in)
	base32.StdEncoding.Encode(h.out[:], sum[:10])
	return h.out[:]
}

// servicePort spells a Service port the way kube-proxy does since 1.19.
func servicePort(namespace, name, port string) string {
	if port == "" {
		return namespace + "/" + name
	}
	return namespace + "/" + name + ":" + port
}

// SplitServicePort takes `ns/name[:port]` apart. A trailing colon (1.18 and older) means an unnamed port.
func SplitServicePort(s string) (namespace, name, port string) {
	namespace, name, _ = strings.Cut(s, "/")
	name, port, _ = strings.Cut(name, ":")
	return namespace, name, port
}

// Collector gathers findings and completes each from its kind.
type Collector struct {
	kinds []Kind
	List  []Finding
	count map[string]int
}

// maxPerKind bounds a report on hostile input.
const maxPerKind = 1000

// NewCollector returns an empty one.
func NewCollector() *Collector { return &Collector{count: map[string]int{}} }

// Addf adds a finding that is about no rule.
func (c *Collector) Addf(name, format string, args ...any) {
	c.Add(Finding{Name: name, Message: fmt.Sprintf(format, args...)})
}

// Add adds a finding. Verdict, remedy and reference default to those of its kind.
func (c *Collector) Add(f Finding) {
	if c.count[f.Name]++; c.count[f.Name] > maxPerKind {
		return
	}
	if c.kinds == nil { // most collectors find nothing
		c.kinds = Kinds()
	}
	k := Kind{}
	if i := slices.IndexFunc(c.kinds, func(k Kind) bool { return k.Name == f.Name }); i >= 0 {
		k = c.kinds[i]
	}
	if f.Verdict == verdict.Unknown {
		f.Verdict = k.Verdict
	}
	if f.Remedy == "" {
		f.Remedy = k.Remedy
	}
	if f.Ref == "" {
		f.Ref = k.Ref
	}
	if f.Message == "" {
		f.Message = k.Summary
	} else if f.Table != "" {
		f.Means = k.Summary
	}
	c.List = append(c.List, f)
}
