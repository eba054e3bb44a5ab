package config

import (
	"path"
	"slices"
	"strings"
)

// Device is a network interface in terms of a [Match] section.
type Device struct {
	Name string
	Kind string // "" for a physical one, whose driver, path and address no file shows
}

// LinkConfig is a .link file with its drop-ins.
type LinkConfig struct {
	File    string
	Entries []Entry
}

// LinkFiles returns the .link files in the order in which udev reads them. Like udev, it skips
// unreadable lines.
func LinkFiles(files Files) ([]LinkConfig, error) { return linkConfigs(files, ".link") }

// NetworkFiles returns the .network files, in networkd's order.
func NetworkFiles(files Files) ([]LinkConfig, error) { return linkConfigs(files, ".network") }

func linkConfigs(files Files, suffix string) ([]LinkConfig, error) {
	dirs := Dirs("systemd/network")
	found, err := Collect(files, dirs, suffix)
	if err != nil {
		return nil, err
	}
	var all []LinkConfig
	for _, f := range found {
		extra, err := DropIns(files, dirs, path.Base(f.Path))
		if err != nil {
			return nil, err
		}
		entries, _ := ParseFiles(append([]File{f}, extra...))
		all = append(all, LinkConfig{f.Path, entries})
	}
	return all, nil
}

// Candidate is a .link file that may apply to a device.
type Candidate struct {
	LinkConfig
	If []Entry // conditions that files cannot decide: host, kernel, ...
}

// LinkFor returns the .link file that applies to a device: the first one that matches. Earlier
// files that match only on certain machines precede it in the result. The last file has an empty
// If, unless no file is certain to match.
func LinkFor(all []LinkConfig, d Device) []Candidate {
	var found []Candidate
	for _, c := range all {
		matches, doubt := d.matches(c.Entries)
		if matches {
			found = append(found, Candidate{c, doubt})
		}
		if matches && len(doubt) == 0 {
			break
		}
	}
	return found
}

// matches evaluates a [Match] section. doubt lists the conditions that depend on the machine (Host,
// KernelVersion, ...), if all others are true. systemd skips a file without any condition.
func (d Device) matches(entries []Entry) (matches bool, doubt []Entry) {
	asked := map[string]patterns{}
	where := map[string]Entry{}
	for _, e := range entries {
		switch {
		case e.Section != "Match":
		case e.Value == "":
			delete(asked, e.Key)
		default:
			value := e.Value
			if e.Key != "OriginalName" && e.Key != "Name" { // in these, a quote is part of the name
				value = strings.ReplaceAll(value, `"`, "")
			}
			asked[e.Key] = append(asked[e.Key], parsePatterns(value)...)
			where[e.Key] = e
		}
	}
	for key, want := range asked {
		if d.Kind == "" && key != "Name" && key != "Kind" {
			doubt = append(doubt, where[key])
			continue
		}
		have := ""
		switch key {
		case "OriginalName", "Name": // in a .link file and in a .network file
			have = d.Name
		case "Kind", "Driver": // for these, ethtool's driver is ip's kind
			have = d.Kind
		case "Type":
			have = d.netType()
		case "Path", "PermanentMACAddress", "MACAddress": // unknown for a virtual interface
		default:
			doubt = append(doubt, where[key])
			continue
		}
		if !want.match(have) {
			return false, nil
		}
	}
	return len(asked) > 0, doubt
}

// netType returns the value that networkctl prints as TYPE: the kernel's DEVTYPE, or else the kind
// of hardware.
func (d Device) netType() string {
	if t := d.devType(); t != "" {
		return t
	}
	switch d.Kind {
	case "ipip":
		return "tunnel"
	case "ip6tnl":
		return "tunnel6"
	case "sit":
		return "sit"
	case "gre":
		return "ipgre"
	}
	return "ether"
}

// devType returns DEVTYPE from the kernel's uevent. Not every kind of link has one.
func (d Device) devType() string {
	if slices.Contains([]string{"vxlan", "bridge", "bond", "vlan", "wireguard", "geneve"}, d.Kind) {
		return d.Kind
	}
	return ""
}

// patterns is systemd's list of globs: patterns with a ! must not match, and if there are others,
// one of these must match.
type patterns []string

// parsePatterns reads one line. A ! before the first pattern inverts the whole line.
func parsePatterns(value string) patterns {
	rest, inverted := strings.CutPrefix(value, "!")
	list := strings.Fields(rest)
	if inverted {
		for i := range list {
			list[i] = "!" + list[i]
		}
	}
	return list
}

// match treats a missing property as "".
func (all patterns) match(have string) bool {
	asks, matches := false, false
	for _, p := range all {
		p, inverted := strings.CutPrefix(p, "!")
		asks = asks || !inverted
		if have != "" && match(p, have) {
			if inverted {
				return false
			}
			matches = true
		}
	}
	return matches || !asks
}
