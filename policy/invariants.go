package policy

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"nodegate/policy/kernels"
)

// checkOrders reports values in the wrong order.
func (p *Policy) checkOrders(r *reader) {
	if r.catalogue == nil {
		return
	}
	applying := p.Applying()
	for _, rule := range kernels.Rules("order") {
		lower, higher := Key(rule.Words[0]), Key(rule.Words[1])
		low := p.findSysctl(lower)
		if low == nil {
			continue
		}
		least, bounded := low.least()
		if !bounded {
			continue
		}
		report := func(key string, most int64, want string, at Metadata) {
			if least <= most || most == 0 && strings.HasPrefix(key, "vm.") { // 0: the kernel uses the other unit
				return
			}
			r.warnf(at.Range, "Wrong order", "%s must be %s here, which is less than %s (%s at %s). %s. Correct one of the two.",
				key, want, lower, low.Want(), place(low.Range), rule.Effect)
		}
		for _, s := range applying.Sysctls {
			about, _ := path.Match(string(higher), string(s.Key))
			if most, bounded := s.most(); about && s.Key != lower && bounded {
				report(s.Key.String(), most, s.Want(), s.Metadata)
			}
		}
		for _, l := range applying.Links {
			for _, s := range l.Of(LinkSysctls) {
				if most, is := parseNumber(s.Value); is && s.Name == string(higher) {
					report(s.Label(), most, s.Value, l.Metadata)
				}
			}
		}
	}
	for _, s := range applying.Sysctls {
		r.checkIncreasing(s)
	}
	p.checkLocalPorts(r)
	p.checkOvercommit(r)
}

// least returns the smallest number that satisfies the requirement, or false if there is none.
func (s Sysctl) least() (int64, bool) {
	switch numbers := s.numbers(); {
	case numbers != nil:
		return slices.Min(numbers), true
	case s.Min != nil:
		return *s.Min, true
	}
	return 0, false
}

// most returns the largest number that satisfies the requirement, or false if there is none.
func (s Sysctl) most() (int64, bool) {
	switch numbers := s.numbers(); {
	case numbers != nil:
		return slices.Max(numbers), true
	case s.Max != nil:
		return *s.Max, true
	}
	return 0, false
}

// numbers returns the values that the requirement allows, if it lists them and all are numbers.
func (s Sysctl) numbers() []int64 {
	values := s.OneOf
	if s.Value != "" {
		values = []string{s.Value}
	}
	var all []int64
	for _, v := range values {
		n, err := strconv.ParseInt(v, 0, 64) // the kernel reads 0x10 and 010 too; a larger number becomes the largest int64
		is := err == nil || errors.Is(err, strconv.ErrRange)
		if !is {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// checkIncreasing reports a parameter of several numbers whose numbers should increase and do not. Sources: tcp(7);
// net/ipv4/sysctl_net_ipv4.c (ipv4_local_port_range), which refuses a range in reverse.
func (r *reader) checkIncreasing(s Sysctl) {
	names := ""
	for _, rule := range kernels.Rules("increasing") {
		if slices.Contains(rule.Words, string(s.Key)) {
			names = rule.Effect
		}
	}
	if names == "" {
		return
	}
	for _, value := range append(slices.Clone(s.OneOf), s.Value) {
		var numbers []int64
		for word := range strings.FieldsSeq(value) {
			n, _ := parseNumber(word)
			numbers = append(numbers, n)
		}
		switch {
		case slices.IsSorted(numbers):
		case s.Key == "net/ipv4/ip_local_port_range":
			r.errorf(s.Range, "Wrong order", "%s is %s; the kernel refuses %q. Write the smaller number first.", s.Key, names, value)
		default:
			r.warnf(s.Range, "Wrong order", "%s is %s; the numbers of %q do not increase. Write them in this order.", s.Key, names, value)
		}
	}
}

// The first and last NodePort: kube-apiserver's default --service-node-port-range.
const firstNodePort, lastNodePort = 30000, 32767

// checkLocalPorts reports local ports that are also NodePorts, unless the policy reserves these: a connection of the node can then have
// the port of a Service (https://github.com/kubernetes/kubernetes/issues/111682).
func (p *Policy) checkLocalPorts(r *reader) {
	ports := p.findSysctl("net/ipv4/ip_local_port_range")
	if ports == nil {
		return
	}
	first, last, ok := strings.Cut(ports.Value, " ")
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	from, to = max(from, firstNodePort), min(to, lastNodePort)
	if !ok || err1 != nil || err2 != nil || from > to {
		return
	}
	reserved := ""
	if s := p.findSysctl("net/ipv4/ip_local_reserved_ports"); s != nil {
		reserved = s.Value
	}
	for item := range strings.SplitSeq(reserved, ",") { // canonical: ranges that touch are joined
		low, high, isRange := strings.Cut(item, "-")
		if !isRange {
			high = low
		}
		l, err1 := strconv.ParseInt(low, 10, 64)
		h, err2 := strconv.ParseInt(high, 10, 64)
		if err1 == nil && err2 == nil && l <= from && h >= to {
			return
		}
	}
	r.warnf(ports.Range, "Node ports",
		"The kernel assigns the local ports %d-%d to outgoing connections; they are NodePorts of Services by default. "+
			"Add: sysctl \"net.ipv4.ip_local_reserved_ports\" { value = \"%d-%d\" }, or end the range below %d.",
		from, to, firstNodePort, lastNodePort, firstNodePort)
}
