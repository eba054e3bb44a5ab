package config

import (
	"path"
	"slices"
	"strings"
)

// Device is a network interface as a [Match] section sees it.
type Device struct {
	Name string
	Kind string // "" for a physical one: no file shows its driver, path and address
}

// LinkConfig is a .link file with its drop-ins.
type LinkConfig struct {
	File    string
	Entries []Entry
}

// LinkFiles returns the .link files in the order in which udev reads them. Lines
// that cannot be read are left out, as udev does with a warning.
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

// Candidate is a .link file that a device may get.
type Candidate struct {
	LinkConfig
	If []Entry // conditions that no file decides: on host, kernel, ...
}

// LinkFor returns the .link file that a device gets: the first that matches. Files
// before it that match only on some machines come first; the last one has no If,
// unless no file is certain to match.
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

// matches evaluates a [Match] section. doubt lists the conditions that depend on the
// machine (Host, KernelVersion, ...), if all others are true. systemd skips a file
// without any condition.
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
			if e.Key != "OriginalName" && e.Key != "Name" { // there a quote is part of the name
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
		case "OriginalName", "Name": // of a .link file, of a .network file
			have = d.Name
		case "Kind", "Driver": // ethtool names the driver of these as ip names their kind
			have = d.Kind
		case "Type":
			have = d.netType()
		case "Path", "PermanentMACAddress", "MACAddress": // no virtual interface has a known one
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

// netType returns what networkctl calls TYPE: the kernel's DEVTYPE, else the kind of
// hardware.
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

// devType returns DEVTYPE of the kernel's uevent: not every kind of link has one.
func (d Device) devType() string {
	if slices.Contains([]string{"vxlan", "bridge", "bond", "vlan", "wireguard", "geneve"}, d.Kind) {
		return d.Kind
	}
	return ""
}

// patterns is systemd's list of globs: those with a ! must not match, and if there
// are others, one of them must.
type patterns []string

// parsePatterns reads one line: a ! before the first inverts the whole line.
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

// match treats a property that the device does not have as "".
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
