package export

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/policy"
	"nodegate/units"
)

// plainFiles are the settings for systemd, udev, ethtool and procps to apply.
// There is no .link file among them: of those udev takes only the first that
// matches, so that ours would switch off the distribution's own naming of the link.
func plainFiles(in Input) (Result, error) {
	s := in.settings(func(policy.Key) string { return "" })
	var rules strings.Builder
	var linkSysctls []sysctl
	for _, l := range in.Policy.Links {
		rule, byName := s.udev(l)
		rules.WriteString(rule)
		linkSysctls = append(linkSysctls, byName...)
	}
	s.proof(in.Policy)
	comment := head("files", in, s.lacks)
	tree := []units.File{
		{Path: "etc/modules-load.d/nodegate.conf", Mode: 0o644, Content: []byte(comment + strings.Join(append(s.modules, ""), "\n"))},
		{Path: "etc/sysctl.d/99-zz-nodegate.conf", Mode: 0o644, Content: sysctlFile(comment, append(s.sysctls, linkSysctls...))},
	}
	if rules.Len() > 0 {
		tree = append(tree, units.File{Path: "etc/udev/rules.d/99-zz-nodegate.rules", Mode: 0o644,
			Content: []byte(comment + "# Offloads need ethtool(8) on the node.\n" + rules.String())})
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

// devTypes are the kinds that the kernel's events name (SET_NETDEV_DEVTYPE);
// veth is not among them.
const devTypes = " vxlan bridge bond vlan geneve "

// udev is a rule that does what the link asks for when it appears. Parameters of
// links that are told by their name are better in sysctl.d, which udev applies too.
func (s *settings) udev(l policy.Link) (rule string, byName []sysctl) {
	name := "link." + l.Name
	m := l.Match
	why := ""
	switch {
	case l.Off:
		return "", nil
	case l.Unknown != "":
		why = "depends on " + l.Unknown + ", which only the node knows"
	case m.DefaultRoute:
		why = "udev does not know which link carries the default route"
	case m.Kind != "" && !strings.Contains(devTypes, " "+m.Kind+" "):
		why = "udev is not told that a link is of kind " + m.Kind
	case strings.ContainsAny(m.Name+m.Driver, "[\\|\""):
		why = "udev reads this pattern differently"
	case slices.ContainsFunc(l.Sysctls, func(c policy.LinkSysctl) bool { return strings.ContainsAny(c.Value, "\"'$%\\") }):
		why = "udev cannot quote this value"
	}
	if why != "" {
		s.lack(name, why, l.Metadata)
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
	var acts []string
	if l.MTU != 0 {
		acts = append(acts, fmt.Sprintf(`ATTR{mtu}="%d"`, l.MTU))
	}
	if len(l.Offloads) > 0 {
		acts = append(acts, `RUN+="/sbin/ethtool -K $name`+offloadWords(l.Offloads)+`"`)
	}
	for _, c := range l.Sysctls {
		if m == (policy.Match{Name: m.Name}) {
			byName = append(byName, sysctl{policy.Key(strings.Replace(string(c.Pattern), "/*/", "/"+m.Name+"/", 1)), c.Value})
			continue
		}
		acts = append(acts, fmt.Sprintf(`RUN+="/sbin/sysctl -qw '%s=%s'"`, strings.Replace(string(c.Pattern), "/*/", "/$name/", 1), c.Value))
	}
	if acts == nil {
		return "", byName
	}
	return strings.Join(append(conditions, acts...), ", ") + "\n", byName
}

func offloadWords(all []policy.Offload) string {
	var b strings.Builder
	for _, o := range all {
		b.WriteString(" " + o.Name + map[bool]string{true: " on", false: " off"}[o.On])
	}
	return b.String()
}
