package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// Of include/uapi/linux/rtnetlink.h and pkt_sched.h: the size of struct tcmsg, the handle and the parent of clsact, and the
// parents of its filters.
const sizeofTcmsg, clsact, clsactParent, ingress, egress = 20, 0xffff0000, 0xfffffff1, 0xfffffff2, 0xfffffff3

// readTraffic reads the filters of tc that see all packets of a link. It leaves out netem, shapers and policing: all flows of the copy come
// at once, and would wait too long where the node's do not.
func (c *Capture) readTraffic(s *wire.Conn) {
	all, _ := s.Dump(unix.RTM_GETQDISC, make([]byte, sizeofTcmsg)) // a kernel may lack it
	for _, m := range all {
		a := attributes(m[sizeofTcmsg:], unix.TCA_OPTIONS)
		kind, l := name(a[unix.TCA_KIND]), c.link(intOf(m[4:8]))
		delays := kind == "netem" || kind == "tbf" && isSlow(m, 8) // rate in struct tc_tbf_qopt
		if kind == "htb" && l != nil {
			classes, _ := s.Dump(unix.RTM_GETTCLASS, trafficMessage(l.Index, 0, 0, 0, "", nil)[:sizeofTcmsg])
			delays = slices.ContainsFunc(classes, func(m []byte) bool { return isSlow(m, 20) }) // ceil in struct tc_htb_opt
		}
		if l != nil && delays {
			c.Untried = append(c.Untried, fmt.Sprintf("%s of tc on %s, which may delay or drop packets (`tc qdisc show dev %[2]s`)", kind, l.Name))
		}
		if l != nil && (kind == "ingress" || kind == "clsact") {
			c.readFiltersOf(s, l, ingress, "ingress")
		}
		if l != nil && kind == "clsact" {
			c.readFiltersOf(s, l, egress, "egress")
		}
	}
	for i := range c.Links {
		if l := &c.Links[i]; l.EBPF && !c.leadsToPods(l.Index) { // Cilium has one at each Pod's
			c.Untried = append(c.Untried, "the eBPF program of "+l.Name)
		}
	}
	_, nodes := c.Overlays()
	for _, node := range nodes {
		if slices.Contains(c.Silent, node) {
			c.Untried = append(c.Untried, "Pods of the node "+node.String()+", which does not answer (`bridge fdb`)")
		}
	}
}

// isSlow reports whether the parameters of a shaper have less than 64 kbit/s, in bytes a second, at an offset.
func isSlow(m []byte, at int) bool {
	const parameters = 1 // TCA_TBF_PARMS, TCA_HTB_PARMS
	p := attributes(attributes(m[sizeofTcmsg:], unix.TCA_OPTIONS)[unix.TCA_OPTIONS], parameters)[parameters]
	return len(p) >= at+4 && binary.NativeEndian.Uint32(p[at:]) < 8000
}

func trafficMessage(link int, handle, parent, info uint32, kind string, options []byte) []byte {
	head := make([]byte, sizeofTcmsg)
	for at, value := range map[int]uint32{4: uint32(link), 8: handle, 12: parent, 16: info} {
		binary.NativeEndian.PutUint32(head[at:], value)
	}
	return slices.Concat(head, text(unix.TCA_KIND, kind), attribute(unix.TCA_OPTIONS|unix.NLA_F_NESTED, options))
}

// readFiltersOf reads filters, up to the first one that cannot be copied, such as eBPF: it may decide before the others.
func (c *Capture) readFiltersOf(s *wire.Conn, l *Link, parent uint32, way string) {
	all, _ := s.Dump(unix.RTM_GETTFILTER, trafficMessage(l.Index, 0, parent, 0, "", nil)[:sizeofTcmsg]) // the link may be gone
	const most = 1000                                                                                   // hardware may serve 100,000
	for _, m := range all[:min(len(all), most)] {
		a := attributes(m[sizeofTcmsg:], unix.TCA_CHAIN)
		kind, handle, info := name(a[unix.TCA_KIND]), binary.NativeEndian.Uint32(m[8:]), binary.NativeEndian.Uint32(m[16:])
		options, copied := copyFilter(kind, a[unix.TCA_OPTIONS])
		const node = 0xfffff
		switch {
		case !copied:
			l.EBPF = l.EBPF || kind == "bpf"
			return
		case handle == 0 || kind == "u32" && handle&node == 0 || intOf(a[unix.TCA_CHAIN]) != 0:
			continue // the head of a list, or a table; the copy has the first chain only
		case kind == "u32":
			handle = 0 // it has the number of the table, which may differ in the copy
		}
		to := fmt.Sprintf("dev %s %s pref %d", l.Name, way, info>>16)
		if n := len(c.Parts); n == 0 || c.Parts[n-1].To != to {
			c.Parts = append(c.Parts, Part{Kind: PartFilter, Table: kind, To: to})
		}
		last := &c.Parts[len(c.Parts)-1]
		last.Entries = append(last.Entries, trafficMessage(l.Index, handle, parent, info, kind, options))
	}
}

// classifiers are the kinds of filters that are copied: the attribute with their actions, and those that are left out (counters, offload,
// and the table of u32).
var classifiers = map[string]struct {
	actions int
	without []int
}{"u32": {7, []int{2, 9, 11}}, "flower": {3, []int{22}}, "matchall": {2, []int{3, 4}}}

// copyFilter returns the options of a filter in the form that creates it again, if the kernel needs nothing else for it.
func copyFilter(kind string, options []byte) (out []byte, ok bool) {
	const link, police, generic = 3, 6, 20 // TCA_U32_LINK, TCA_U32_POLICE; size of tc_gen, with which parameters begin
	at, ok := classifiers[kind]
	if a := attributes(options, police); kind == "u32" && (a[link] != nil || a[police] != nil) {
		ok = false
	}
	out = filter(options, func(is int) bool { return is != at.actions && !slices.Contains(at.without, is) })
	var actions []byte
	each(attributes(options, at.actions)[at.actions], func(order int, action, _ []byte) {
		kind, parameters := parseAction(action)
		size := map[string]int{"gact": generic, "mirred": generic + 8}[kind]
		if size == 0 || len(parameters) < size || kind == "mirred" && parameters[generic]%2 == 0 {
			ok = false // it sends copies elsewhere, or does something else
			return
		}
		actions = append(actions, attribute(uint16(order)|unix.NLA_F_NESTED, text(actionKind, kind),
			attribute(actionOptions|unix.NLA_F_NESTED, attribute(actionParameters, parameters)))...)
	})
	return append(out, attribute(uint16(at.actions)|unix.NLA_F_NESTED, actions)...), ok
}

// Attributes of include/uapi/linux/pkt_cls.h; TCA_GACT_PARMS and TCA_MIRRED_PARMS are the same.
const actionKind, actionOptions, actionParameters = 1, 2, 2

func parseAction(action []byte) (kind string, parameters []byte) {
	a := attributes(action, actionOptions)
	return name(a[actionKind]), attributes(a[actionOptions], actionParameters)[actionParameters]
}

// traffic returns the messages of a part of tc with the copy's indexes of links; none if its link is not copied.
func (r *Replica) traffic(p *Part) (list [][]byte) {
	actions := classifiers[p.Table].actions
	for _, m := range p.Entries {
		index := r.index[intOf(m[4:8])]
		if index == 0 {
			break
		}
		m = bytes.Clone(m)
		binary.NativeEndian.PutUint32(m[4:], uint32(index))
		options := attributes(m[sizeofTcmsg:], unix.TCA_OPTIONS)[unix.TCA_OPTIONS]
		each(attributes(options, actions)[actions], func(_ int, action, _ []byte) {
			if kind, parameters := parseAction(action); kind == "mirred" {
				binary.NativeEndian.PutUint32(parameters[24:], uint32(r.index[intOf(parameters[24:28])]))
			}
		})
		list = append(list, m)
	}
	return list
}

// readPolicies reads the policies of IPsec if one blocks packets, as do those whose other side has no security association. One that
// encrypts lets its packets pass in the copy. It opens no socket, which would load a module, unless the kernel has one.
func (c *Capture) readPolicies() (err error) {
	sockets, _ := os.ReadFile("/proc/thread-self/net/netlink")
	if !regexp.MustCompile(fmt.Sprintf(`(?m)^\S+ +%d +0 `, unix.NETLINK_XFRM)).Match(sockets) {
		return nil
	}
	var all, associations [][]byte
	err = wire.With(unix.NETLINK_XFRM, func(s *wire.Conn) error {
		all, err = s.Dump(getPolicy, nil)
		if err == nil {
			associations, err = s.Dump(getAssociation, nil)
		}
		return err
	})
	all = slices.DeleteFunc(all, func(m []byte) bool { return len(m) < sizeofPolicy || m[policyDirection] > 2 }) // of a socket
	var does []string
	for _, m := range all {
		const template, out = 5, 1 // XFRMA_TMPL, XFRM_POLICY_OUT
		does = append(does, []string{"allow", "block"}[m[policyAction]&1])
		if t := attributes(m[sizeofPolicy:], template)[template]; len(t) >= 16 && m[policyDirection] == out && [16]byte(t) != [16]byte{} &&
			!slices.ContainsFunc(associations, func(a []byte) bool { // with the same other side, and a number: it is no request of the kernel's
				return len(a) >= 76 && bytes.Equal(a[56:72], t[:16]) && [4]byte(a[72:76]) != [4]byte{}
			}) {
			does[len(does)-1], m[policyAction] = NoAssociation, 1
		}
	}
	if !slices.ContainsFunc(all, func(m []byte) bool { return m[policyAction] == 1 }) {
		return err
	}
	for i, m := range all {
		clear(m[120:152])                         // counters
		const policyType, mark, link = 16, 21, 31 // XFRMA_POLICY_TYPE and so on
		c.Parts = append(c.Parts, Part{Kind: PartIPsec, Family: m[40], To: selector(m), Table: does[i],
			Entries: [][]byte{slices.Concat(m[:sizeofPolicy], filter(m[sizeofPolicy:], func(kind int) bool {
				return kind == policyType || kind == mark || kind == link
			}))}})
	}
	return nil
}

// NoAssociation is Part.Table of a policy of IPsec without a security association: its packets wait for IKE.
const NoAssociation = "no security association"

// Of struct xfrm_userpolicy_info of include/uapi/linux/xfrm.h, and XFRM_MSG_GETPOLICY, _UPDPOLICY and _GETSA.
const policyDirection, policyAction, sizeofPolicy, getPolicy, setPolicy, getAssociation = 160, 161, 168, 0x15, 0x19, 0x12

// selector returns the packets of a policy of IPsec as ip prints them.
func selector(m []byte) string {
	size := map[byte]int{unix.AF_INET: 4, unix.AF_INET6: 16}[m[40]]
	to, _ := netip.AddrFromSlice(m[:size])
	from, _ := netip.AddrFromSlice(m[16 : 16+size])
	return fmt.Sprintf("src %s/%d dst %s/%d dir %s", from, m[43], to, m[42], []string{"in", "out", "fwd"}[m[policyDirection]])
}

// policy returns the message that sets a policy of IPsec. If it is left out, it lets its packets pass.
func (r *Replica) policy(p *Part, without bool) []byte {
	m := bytes.Clone(p.Entries[0])
	binary.NativeEndian.PutUint32(m[48:], uint32(r.index[intOf(m[48:52])]))
	if without {
		m[policyAction] = 0
	}
	return m
}
