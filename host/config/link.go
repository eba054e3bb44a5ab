package config

import (
	"path"
	"strings"
)

// Device is a network interface as a .link file's [Match] sees it.
type Device struct{ Name, Kind string }

// LinkConfig is a .link file with its drop-ins.
type LinkConfig struct {
	File    string
	Entries []Entry
}

// LinkFiles is the .link files in the order in which udev looks at them. Of a
// line that it cannot read udev warns, and goes on.
func LinkFiles(files Files) ([]LinkConfig, error) {
	dirs := Dirs("systemd/network")
	found, err := Collect(files, dirs, ".link")
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
	If []Entry // conditions that no file can tell: on host, kernel, ...
}

// LinkFor is the .link file that a device gets: the first that matches. Files
// before it that would match on some machines come first; the last one has no
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

// matches goes through a [Match] section. Doubt is the conditions that depend on
// the machine (Host, KernelVersion, ...), where all others hold.
func (d Device) matches(entries []Entry) (matches bool, doubt []Entry) {
	asked := map[string][]string{}
	where := map[string]Entry{}
	for _, e := range entries {
		switch {
		case e.Section != "Match":
		case e.Value == "":
			delete(asked, e.Key)
		default:
			asked[e.Key] = append(asked[e.Key], strings.Fields(strings.ReplaceAll(e.Value, `"`, ""))...)
			where[e.Key] = e
		}
	}
	for key, patterns := range asked {
		switch key {
		case "OriginalName":
			if !globs(patterns, d.Name) {
				return false, nil
			}
		case "Kind":
			if !globs(patterns, d.Kind) {
				return false, nil
			}
		case "Driver": // ethtool names the driver of these as ip names their kind
			if !globs(patterns, d.Kind) {
				return false, nil
			}
		case "Type":
			if !globs(patterns, "ether") {
				return false, nil
			}
		case "Path", "PermanentMACAddress", "MACAddress": // no virtual interface has a known one
			if !strings.HasPrefix(patterns[0], "!") {
				return false, nil
			}
		default:
			doubt = append(doubt, where[key])
		}
	}
	return true, doubt
}

// globs is systemd's list of patterns: a ! before the first inverts all.
func globs(patterns []string, name string) bool {
	if len(patterns) == 0 {
		return true
	}
	rest, inverted := strings.CutPrefix(patterns[0], "!")
	for i, p := range patterns {
		if i == 0 {
			p = rest
		}
		if match(p, name) {
			return !inverted
		}
	}
	return inverted
}
