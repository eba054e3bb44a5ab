// Package policy is nodegate's language: what a node must be, written in HCL.
//
// It turns files into a Policy, or into diagnostics that name file, line and
// column. It knows nothing of the machine: it never reads /proc, and imports
// no package that does.
package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Policy is what the given files, taken together, ask of a node. The order of each
// list is the order of the files.
type Policy struct {
	Files    []string // names of the files it was read from, built-in ones included
	Modules  []Module
	Sysctls  []Sysctl
	Links    []Link
	Problems []Problem
	Probes   []Probe
	Gate     Gate
	Publish  Publish
	Audit    Audit
}

// Applying returns the policy without the requirements that are off here, or of which that is not known.
func (p *Policy) Applying() *Policy {
	a := *p
	a.Modules = applying(p.Modules, func(m Module) bool { return m.Applies() })
	a.Sysctls = applying(p.Sysctls, func(s Sysctl) bool { return s.Applies() })
	a.Links = applying(p.Links, func(l Link) bool { return l.Applies() })
	return &a
}

func applying[T any](all []T, applies func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !applies(one) })
}

// Metadata is what every requirement says about itself.
type Metadata struct {
	Severity Severity
	Reason   string    // why it is asked for, in the author's words
	Ref      string    // where the reason is documented
	Symptom  string    // what a user sees where the requirement fails
	TradeOff string    // what it costs
	Drift    Drift     // what watch does when it begins to fail
	Range    hcl.Range // where the policy asks for it
	Override hcl.Range // of the override that changed it, if one did
	Builtin  bool      // a built-in policy asks for it
	Off      bool      // its when is false here
	When     string    // where that when is
	Unknown  string    // the facts that it depends on and that are not known here
	// WhenUnknown are those of them on which its when depends: it may not apply at all.
	WhenUnknown string
	// Undecided are those of another requirement of the same name, which blocks: it may ask for something else.
	Undecided string
	Selects   string // of a link block: the interfaces that it is about
}

// Applies reports whether the requirement is in force on this node, with a known
// value.
func (a Metadata) Applies() bool { return !a.Off && a.Unknown == "" }

// Source returns the file and line that asks for a requirement, and those of the
// override that changed it.
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

// Severity says what a failing requirement does to the gate.
type Severity string

// Block, the default, keeps the gate closed; Warn is only reported.
const (
	Block Severity = "block"
	Warn  Severity = "warn"
)

// Drift says what watch does about a requirement that begins to fail while the node
// runs.
type Drift string

// Correct makes it pass again; it is the default, unless the gate does not repair.
// Report only reports, and is the default for a check. Ignore does not inspect it.
const (
	Correct Drift = "correct"
	Report  Drift = "report"
	Ignore  Drift = "ignore"
)

// Module asks for a kernel module: loaded, or built into the kernel.
type Module struct {
	Metadata
	Name string // as the kernel spells it: underscores
}

// Sysctl asks for the value of a kernel parameter. Either Value, or OneOf, or
// a bound is set.
type Sysctl struct {
	Metadata
	Key   Key
	Value string   // one exact value, white space folded
	OneOf []string // any of these; the first is the one to write
	Min   *int64
	Max   *int64
}

// Link asks for settings of every network interface that matches.
type Link struct {
	Metadata
	Name     string
	Match    Match
	Offloads []Offload
	MTU      int          // bytes; 0 asks for nothing
	Sysctls  []LinkSysctl // in the order of their keys
}

// Want returns the requirement in a few words, in a fixed order:
// "tx-checksum-ip-generic=off mtu=1450".
func (l Link) Want() string {
	var w []string
	for _, o := range l.Offloads {
		value := "off"
		if o.On {
			value = "on"
		}
		w = append(w, o.Name+"="+value)
	}
	if l.MTU != 0 {
		w = append(w, "mtu="+strconv.Itoa(l.MTU))
	}
	for _, s := range l.Sysctls {
		w = append(w, s.Pattern.String()+"="+s.Value)
	}
	return strings.Join(w, " ")
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

// Offload is one entry of a link's offload map.
type Offload struct {
	Name     string   // as the author wrote it
	Features []string // the kernel's names for it
	Group    bool     // Name is one of ethtool's group names, a device may lack some of Features
	On       bool
}

// LinkSysctl is a kernel parameter of one interface. Pattern has a component
// "*" where the interface's name goes: net/ipv4/conf/*/rp_filter.
type LinkSysctl struct {
	Pattern Key
	Value   string
}

// Problem asks for one of nodegate's own checks by its name. With severity "" the
// check decides.
type Problem struct {
	Metadata
	Name string
}

// Probe asks for a proof with real packets. The only one is "bridge": the reply of a
// Service whose endpoint is on the same bridge.
type Probe struct {
	Metadata
	Name    string
	Timeout time.Duration // the longest wait for the reply
}

// Gate says how kubelet's start is delayed.
type Gate struct {
	Unit      string        // the systemd unit that waits
	UnitAt    hcl.Range     // where the policy names it
	MayLack   bool          // the unit may be installed after nodegate
	Budget    time.Duration // how long one start attempt may wait
	Interval  time.Duration // between two checks
	OnTimeout OnTimeout
	Repair    bool     // apply, rather than only check, while waiting
	Enforce   Severity // Warn: nothing is held; what would be is reported
	OnHeld    []string // a program with arguments that is given the report of a unit that is held
	Range     hcl.Range
}

// OnTimeout says what happens to the unit when the budget is used up.
type OnTimeout string

// Hold fails the start, so that systemd tries again; Release starts the unit
// nevertheless, and says so loudly.
const (
	Hold    OnTimeout = "hold"
	Release OnTimeout = "release"
)

// defaultGate is what a policy without a gate block asks for.
func defaultGate() Gate {
	return Gate{Unit: "kubelet.service", Budget: 2 * time.Minute, Interval: 2 * time.Second, OnTimeout: Hold, Repair: true, Enforce: Block}
}
