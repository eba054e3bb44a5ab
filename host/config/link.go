package config

import (
	"errors"
	"strings"
)

// Device is a network interface as a .link file's [Match] sees it.
type Device struct{ Name, Kind string }

// LinkConfig is the .link file that udev applies to an interface.
type LinkConfig struct {
	File    string // "" where none matches
	Entries []Entry
	Unsure  []Entry // conditions, of this file and of those before it, that a file cannot tell
}

// LinkFiles is the .link files with their drop-ins, in the order in which udev
// looks at them.
func LinkFiles(files Files) ([]LinkConfig, error) {
	dirs := Dirs("systemd/network")
	found, err := Collect(files, dirs, ".link")
	if err != nil {
		return nil, err
	}
	var all []LinkConfig
	var errs []error
	for _, f := range found {
		extra, err := DropIns(files, dirs, f.Path[strings.LastIndexByte(f.Path, '/')+1:])
		errs = append(errs, err)
		entries, err := ParseFiles(append([]File{f}, extra...))
		errs = append(errs, err)
		all = append(all, LinkConfig{File: f.Path, Entries: entries})
	}
	return all, errors.Join(errs...)
}

// LinkFor is the first of the files that matches the device.
func LinkFor(all []LinkConfig, d Device) LinkConfig {
	var unsure []Entry
	for _, c := range all {
		matches, doubt := d.matches(c.Entries)
		if !matches {
			continue
		}
		unsure = append(unsure, doubt...)
		if len(doubt) == 0 {
			c.Unsure = unsure
			return c
		}
	}
	return LinkConfig{Unsure: unsure}
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
