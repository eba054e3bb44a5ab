package export

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/ethtool"
	"nodegate/policy"
	"nodegate/units"
)

// plainFiles writes the settings as files that systemd, udev, ethtool and procps apply. It writes no
// .link file: udev uses only the first one that matches, so ours would disable the distribution's own
// naming of the link.
func plainFiles(in Input) (Result, error) {
	s := in.collectSettings()
	s.sysctls = slices.DeleteFunc(s.sysctls, func(c sysctl) bool {
		i := slices.IndexFunc(in.Policy.Sysctls, func(p policy.Sysctl) bool { return p.Key == c.key && p.CanStopMachine() })
		if i >= 0 {
			s.addLack("sysctl."+c.key.String(), "a wrong value stops the machine at boot, where no break-glass reaches; only nodegate sets it",
				in.Policy.Sysctls[i].Metadata)
		}
		return i >= 0
	})
	var rules strings.Builder
	var linkSysctls []sysctl
	for _, l := range in.Policy.Links {
		rule, byName := s.udevRule(l)
		rules.WriteString(rule)
		linkSysctls = append(linkSysctls, byName...)
	}
	s.addNodeOnlyLacks(in.Policy)
	comment := headComment("files", in, s.lacks)
	load := comment
	for _, m := range s.modules {
		load += m.Name + "\n"
	}
	tree := []units.File{
		{Path: "etc/modules-load.d/nodegate.conf", Mode: 0o644, Content: []byte(load)},
		{Path: "etc/sysctl.d/99-zz-nodegate.conf", Mode: 0o644, Content: sysctlFile(comment, append(s.sysctls, linkSysctls...))},
	}
	if lines := s.modprobeLines(); lines != nil {
		tree = append(tree, units.File{Path: "etc/modprobe.d/99-zz-nodegate.conf", Mode: 0o644,
			Content: []byte(comment + strings.Join(lines, "\n") + "\n")})
	}
	if len(s.sysfs) > 0 {
		tree = append(tree, units.File{Path: "etc/tmpfiles.d/99-zz-nodegate.conf", Mode: 0o644, Content: tmpfiles(comment, s.sysfs)})
	}
	if rules.Len() > 0 {
		tree = append(tree, units.File{Path: "etc/udev/rules.d/99-zz-nodegate.rules", Mode: 0o644,
			Content: []byte(comment + "# Offloads, rings, channels and coalescing need ethtool(8) on the node.\n" + rules.String())})
	}
	return Result{Tree: tree, Lacks: s.lacks}, nil
}

func sysctlFile(comment string, all []sysctl) []byte {
	var b strings.Builder
	b.WriteString(comment)
	for _, c := range all {
		fmt.Fprintf(&b, "%s = %s\n", c.key, c.value)
	}
	return []byte(b.String())
}

// tmpfiles returns lines of tmpfiles.d(5) that write to existing files. The path may be a glob.
func tmpfiles(comment string, all []sysctl) []byte {
	var b strings.Builder
	b.WriteString(comment)
	for _, c := range all {
		fmt.Fprintf(&b, "w %s - - - - %s\n", c.key, strings.NewReplacer("%", "%%", `\`, `\\`).Replace(c.value))
	}
	return []byte(b.String())
}

// devTypes lists the kinds of link that the kernel's events report (SET_NETDEV_DEVTYPE), which exclude
// veth.
const devTypes = " vxlan bridge bond vlan geneve "

// udevRule returns a rule that applies a link's settings when the link appears. Parameters of a link
// that is matched only by name go to sysctl.d instead, which udev applies as well.
func (s *settings) udevRule(l policy.Link) (rule string, byName []sysctl) {
	name := "link." + l.Name
	m := l.Match
	why := ""
	switch {
	case l.Off:
		return "", nil
	case l.Unknown != "":
		why = "depends on " + l.Unknown + ", which is known only on the node"
	case m.DefaultRoute:
		why = "udev does not know which link carries the default route"
	case m.Kind != "" && !strings.Contains(devTypes, " "+m.Kind+" "):
		why = "the kernel's event to udev does not report the link kind " + m.Kind
	case strings.ContainsAny(m.Name+m.Driver, "[\\|\""):
		why = "udev interprets this pattern differently"
	case slices.ContainsFunc(l.Settings, func(c policy.LinkSetting) bool { return strings.ContainsAny(c.Value, "\"'$%\\") }):
		why = "udev cannot quote this value"
	}
	if why != "" {
		s.addLack(name, why, l.Metadata)
		return "", nil
	}
	conditions := []string{`SUBSYSTEM=="net"`, `ACTION=="add|move"`}
	add := func(key, value string) {
		if value != "" {
			conditions = append(conditions, key+`=="`+value+`"`)
		}
	}
	add("KERNEL", m.Name)
	add("ENV{DEVTYPE}", m.Kind)
	add("ENV{ID_NET_DRIVER}", m.Driver)
	var actions []string
	for _, kind := range ethtool.Kinds() {
		words := ""
		for _, t := range l.Of(policy.LinkKind(kind.Name)) {
			if kind.IsScalar() {
				actions = append(actions, fmt.Sprintf(`ATTR{%s}=%q`, kind.Name, t.Value))
				continue
			}
			if t.Value == "max" { // ethtool(8) does not know it
				s.addLack(name, t.Label()+" is the driver's maximum, which is known only on the node", l.Metadata)
				continue
			}
			words += " " + t.Name + " " + t.Value
		}
		if words != "" {
			actions = append(actions, fmt.Sprintf(`RUN+="/sbin/ethtool %s $name%s"`, kind.Flag, words))
		}
	}
	for _, c := range l.Of(policy.LinkSysctls) {
		if m == (policy.Match{Name: m.Name}) {
			byName = append(byName, sysctl{policy.Key(strings.Replace(c.Name, "/*/", "/"+m.Name+"/", 1)), c.Value})
			continue
		}
		actions = append(actions, fmt.Sprintf(`RUN+="/sbin/sysctl -qw '%s=%s'"`, strings.Replace(c.Name, "/*/", "/$name/", 1),
			c.Value))
	}
	for _, c := range l.Of(policy.LinkSysfs) {
		attribute := strings.TrimPrefix(c.Name, "/sys/class/net/*/")
		if policy.Key(attribute).IsGlob() {
			s.addLack(name, "udev does not set each attribute that matches "+attribute, l.Metadata)
			continue
		}
		actions = append(actions, fmt.Sprintf(`ATTR{%s}="%s"`, attribute, c.Value))
	}
	if actions == nil {
		return "", byName
	}
	return strings.Join(append(conditions, actions...), ", ") + "\n", byName
}
