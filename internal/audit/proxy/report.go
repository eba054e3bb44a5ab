package proxy

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// Judgment is the result of Judge.
type Judgment struct {
	Mode     string       `json:"mode"` // "iptables", "nftables", "ipvs", or empty if the input has no kube-proxy rules
	Version  VersionRange `json:"version"`
	Services []Service    `json:"services"`
	Findings []Finding    `json:"findings"`
	Notes    []string     `json:"notes,omitempty"` // remarks about how the rules were read

	Families  map[string]bool    `json:"-"` // families that were judged
	NodePorts map[string]bool    `json:"-"` // families in which the rules serve node ports at some address
	HostPorts []ruleset.HostPort `json:"-"` // in portmap's rules

	filtered map[string]bool            // families whose table filter was judged
	hairpins map[string]map[string]bool // the set hairpin-connections of each family that uses it: "tcp 10.0.0.1:80"

	others []Service // the Services of the full report, if this is a report of one Service
	ipvs   *ipvs     // nil if not in IPVS mode or not read
}

// Finding is one violated invariant with its evidence.
type Finding struct {
	Name    string          `json:"name"` // dotted, lower case, stable: the name of a Kind
	Verdict verdict.Verdict `json:"verdict"`
	Service string          `json:"service,omitempty"` // ns/name[:port]
	Family  string          `json:"family,omitempty"`  // "ip" or "ip6"
	Table   string          `json:"table,omitempty"`
	Chain   string          `json:"chain,omitempty"`
	Line    int             `json:"line,omitempty"`   // line in the input
	Handle  int             `json:"handle,omitempty"` // nftables: handle as `nft -a` prints it
	Rule    string          `json:"rule,omitempty"`
	Means   string          `json:"-"` // meaning for readers who do not know the rules, if Message is about a rule
	Message string          `json:"message"`
	Remedy  string          `json:"remedy,omitempty"`
	Ref     string          `json:"ref,omitempty"`
}

// Explains reports whether a finding explains why its Service differs from the API. A warning does not: a chain that no
// rule leads to may be the symptom of a lost rule.
func (f *Finding) Explains() bool { return f.Verdict != verdict.Warn }

// Describe returns the meaning of the finding and the observation behind it.
func (f *Finding) Describe() string {
	if f.Means == "" {
		return f.Message
	}
	return f.Means + " (" + f.Message + ")"
}

// Service and Endpoint are a Service as the rules implement it, or as the API wants it.
type (
	Service  = model.Service
	Endpoint = model.Endpoint
)

// Conclude replaces the findings of the report and judges its Services by them.
func (r *Judgment) Conclude(findings []Finding) {
	r.Findings = append([]Finding{}, findings...)
	for i := range r.Services {
		r.Services[i].Findings = nil
	}
	r.finish()
}

// Broken returns the Service ports that findings in the report exclude from the comparison with the API.
func (r *Judgment) Broken() map[ServicePort]bool {
	ports := map[ServicePort]bool{}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Explains() {
			ports[PortOf(f)] = true
		}
	}
	return ports
}

// State formats the rules of a Service port on one line. It changes whenever kube-proxy writes a different rule.
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

// formatServicePort formats a Service port as kube-proxy does since 1.19.
func formatServicePort(namespace, name, port string) string {
	if port == "" {
		return namespace + "/" + name
	}
	return namespace + "/" + name + ":" + port
}

// SplitServicePort splits `ns/name[:port]`. A trailing colon (1.18 and older) means an unnamed port.
func SplitServicePort(s string) (namespace, name, port string) {
	namespace, name, _ = strings.Cut(s, "/")
	name, port, _ = strings.Cut(name, ":")
	return namespace, name, port
}

// Collector collects findings and completes each from its Kind.
type Collector struct {
	kinds []Kind
	List  []Finding
	count map[string]int
}

// maxPerKind limits the size of a report on hostile input.
const maxPerKind = 1000

// NewCollector returns an empty Collector.
func NewCollector() *Collector { return &Collector{count: map[string]int{}} }

// NewFinding returns a finding completed from its Kind.
func NewFinding(f Finding) Finding {
	c := NewCollector()
	c.Add(f)
	return c.List[0]
}

// Addf adds a finding that is not about a rule.
func (c *Collector) Addf(name, format string, args ...any) {
	c.Add(Finding{Name: name, Message: fmt.Sprintf(format, args...)})
}

// Add adds a finding. Its verdict, remedy and reference default to the values of its Kind.
func (c *Collector) Add(f Finding) {
	if c.count[f.Name]++; c.count[f.Name] > maxPerKind {
		return
	}
	if c.kinds == nil { // most collectors stay empty
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
	} else if f.Table != "" && f.Means == "" {
		f.Means = k.Summary
	}
	c.List = append(c.List, f)
}
