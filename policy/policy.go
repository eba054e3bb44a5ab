// Package policy implements nodegate's language for the requirements of a node, written in HCL.
//
// It turns files into a Policy, or into diagnostics that name file, line and column. It does not
// depend on the machine: it never reads /proc and imports no package that does.
package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Policy holds the requirements of all files of a policy. Each list has the order of the files.
type Policy struct {
	Files    []string // names of the files that it was read from, including built-in ones
	Digest   string   // of the text of these files and of the variables: the first digits of their SHA-256
	Version  string   // of nodegate, as in Options
	Modules  []Module
	Sysctls  []Sysctl
	Sysfs    []Sysctl // attributes below /sys: each Key is an absolute path
	Links    []Link
	Problems []Problem
	Execs    []Exec
	Probes   []Probe
	Gate     Gate
	Publish  Publish
	Audit    Audit
}

// Applying returns the policy with only the modules, sysctls, attributes of /sys and links that apply on this node.
func (p *Policy) Applying() *Policy {
	a := *p
	a.Modules = applying(p.Modules, Module.Applies)
	a.Sysctls = applying(p.Sysctls, Sysctl.Applies)
	a.Sysfs = applying(p.Sysfs, Sysctl.Applies)
	a.Links = applying(p.Links, Link.Applies)
	return &a
}

func applying[T any](all []T, applies func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !applies(one) })
}

// Metadata holds the attributes that all requirements have in common.
type Metadata struct {
	Severity Severity
	Reason   string    // why it is required, in the author's words
	Ref      string    // URL of the reason's source
	Symptom  string    // the effect that users see if the requirement fails
	TradeOff string    // its cost
	Drift    Drift     // how watch reacts when it begins to fail
	Range    hcl.Range // its position in the policy
	Override hcl.Range // position of the override that changed it, if any
	Rank     int       // of its file, as a block's
	Off      bool      // its when is false here
	When     string    // position of a when that is false
	Unknown  string    // unknown facts that it depends on, separated by commas
	// WhenUnknown lists the unknown facts that its when depends on: it may not apply at all.
	WhenUnknown string
	// Undecided lists the unknown facts of a blocking requirement of the same name, which may require another value.
	Undecided string
}

// Applies reports whether the requirement applies on this node, with a known value.
func (a Metadata) Applies() bool { return !a.Off && a.Unknown == "" }

func (m *Metadata) metadata() *Metadata { return m }

// About returns the attributes that all requirements have in common.
func (m Metadata) About() Metadata { return m }

// Source returns the file and line of a requirement, and of the override that changed it, if any.
func (m Metadata) Source() string {
	if m.Range.Filename == "" {
		return ""
	}
	s := fmt.Sprintf("%s:%d", m.Range.Filename, m.Range.Start.Line)
	if m.Override.Filename != "" {
		s += fmt.Sprintf(", overridden at %s:%d", m.Override.Filename, m.Override.Start.Line)
	}
	return s
}

// Severity determines whether a failing requirement holds the gate.
type Severity string

// Block, the default, keeps the gate closed; Warn is only reported.
const (
	Block Severity = "block"
	Warn  Severity = "warn"
)

// Drift determines how watch reacts to a requirement that begins to fail while the node runs.
type Drift string

// Correct applies the requirement again; it is the default unless the gate has repair = false.
// Report only reports it, and is the default for a check. Ignore does not inspect it.
const (
	Correct Drift = "correct"
	Report  Drift = "report"
	Ignore  Drift = "ignore"
)

// Sysctl requires a value of a kernel parameter. Either Value, or OneOf, or a bound is set.
type Sysctl struct {
	Metadata
	Key   Key
	Value string   // one exact value, white space folded
	OneOf []string // any of these; the first is the one to write
	Min   *int64
	Max   *int64
}

// Link requires settings of every network interface that matches.
type Link struct {
	Metadata
	Name     string
	Match    Match
	Settings []LinkSetting // by kind, then by name
}

// Want returns the required settings in a fixed order: "tx-checksum-ip-generic=off mtu=1450".
func (l Link) Want() string {
	var w []string
	for _, s := range l.Settings {
		w = append(w, s.Label()+"="+s.Value)
	}
	return strings.Join(w, " ")
}

// Of returns the settings of one kind.
func (l Link) Of(kind LinkKind) []LinkSetting {
	return applying(l.Settings, func(s LinkSetting) bool { return s.Kind == kind })
}

// Match selects interfaces: all conditions that are set must be true.
type Match struct {
	Name         string // glob: flannel*
	Kind         string // as `ip -d link` prints it: vxlan, bridge, veth
	Driver       string // as `ethtool -i` prints it: ena
	DefaultRoute bool   // carries a default route
}

// String returns the conditions in a fixed order: "name=flannel* kind=vxlan".
func (m Match) String() string {
	var w []string
	for _, c := range [][2]string{{"name", m.Name}, {"kind", m.Kind}, {"driver", m.Driver}} {
		if c[1] != "" {
			w = append(w, c[0]+"="+c[1])
		}
	}
	if m.DefaultRoute {
		w = append(w, "default_route")
	}
	return strings.Join(w, " ")
}

// Problem requires the check for a known problem to pass. If Severity is "", the check determines it.
type Problem struct {
	Metadata
	Name string
}

// Probe requires a test with real packets to pass: Bridge, the reply of a Service whose endpoint is on the same bridge, or Service,
// a connection of the running node to a Service.
type Probe struct {
	Metadata
	Name     string
	Timeout  time.Duration // the longest wait for one reply
	Address  string        // of the Service: "10.96.0.10:53"
	Protocol string        // of the Service: tcp or dns, which is a query over UDP
}

// Want returns what the probe proves.
func (p Probe) Want() string {
	if p.Name == Service {
		return p.Address + " (" + p.Protocol + ") answers"
	}
	return "reply translated"
}

// The names of probes.
const Bridge, Service = "bridge", "service"

// Gate configures how kubelet's start is delayed.
type Gate struct {
	Unit      string        // the systemd unit that waits
	UnitAt    hcl.Range     // position of its name in the policy
	MayLack   bool          // the unit may be missing when nodegate is installed
	Budget    time.Duration // the longest wait of one start attempt
	Interval  time.Duration // time between two checks
	OnTimeout OnTimeout
	Repair    bool     // apply the policy while waiting, instead of only checking it
	Enforce   Severity // Warn: hold nothing, only report that the unit would be held
	OnHeld    []string // a program, with arguments, that receives the report of a held unit
	Range     hcl.Range
}

// OnTimeout determines whether the unit starts when the budget is used up.
type OnTimeout string

// Hold fails the start, so that systemd tries again. Release starts the unit anyway and reports that prominently.
const (
	Hold    OnTimeout = "hold"
	Release OnTimeout = "release"
)

// defaultGate returns the gate of a policy without a gate block.
func defaultGate() Gate {
	return Gate{Unit: "kubelet.service", Budget: 2 * time.Minute, Interval: 2 * time.Second, OnTimeout: Hold, Repair: true, Enforce: Block}
}
