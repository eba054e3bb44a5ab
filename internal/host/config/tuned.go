package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"nodegate/internal/host/file"
)

// TunedSetting is a kernel parameter that TuneD writes when it applies a profile.
type TunedSetting struct {
	Setting        // Value begins with > or < if TuneD only raises or lowers it
	If      string // a condition that files cannot decide, or ""
}

// TunedSysctls returns the settings that the active TuneD profile writes and that nothing
// overwrites later: with reapply_sysctl, its default, TuneD itself then applies /run/sysctl.d,
// /etc/sysctl.d and /etc/sysctl.conf. An error means a profile that cannot be read, which TuneD
// does not apply either.
func TunedSysctls(files Files) ([]TunedSetting, error) {
	p := tunedProfile{files: files, units: map[string]*tunedUnit{}}
	for _, name := range []string{"/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile"} {
		text, _, err := ReadIfAny(files, name)
		if err != nil {
			return nil, err
		}
		if err := p.loadProfiles(strings.Fields(string(text))); err != nil {
			return nil, err
		}
	}
	again, err := tunedReapplies(files)
	if err != nil {
		return nil, err
	}
	var all []TunedSetting
	for _, name := range p.order {
		unit := p.units[name]
		if unit.kind != "sysctl" || unit.off {
			continue
		}
		for _, e := range unit.options {
			set := Setting{Key: strings.ReplaceAll(e.Key, ".", "/"), Value: e.Value, File: e.File, Line: e.Line}
			s := TunedSetting{Setting: set, If: unit.condition}
			if strings.Contains(e.Value, "${") {
				s.If = e.Value
			}
			if !slices.Contains(again, s.Key) {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// mostProfile bounds a profile, in bytes, because each option is compared with all earlier ones.
const mostProfile = 64 << 10

// tunedProfile is the result of merging profiles as TuneD does: a section of a later profile adds
// to the same section of an earlier one, or replaces it.
type tunedProfile struct {
	files  Files
	units  map[string]*tunedUnit
	order  []string
	loaded []string
}

type tunedUnit struct {
	kind, condition string
	off             bool
	options         []Entry
}

// tunedDirs are the directories of profiles, highest precedence first. Since 2.23, profiles have a
// directory of their own.
func tunedDirs() []string {
	return []string{"/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"}
}

func (p *tunedProfile) loadProfiles(names []string) error {
	for _, name := range names {
		name, optional := strings.CutPrefix(name, "-")
		f, err := p.findProfile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && optional, err == nil && slices.Contains(p.loaded, f.Path):
			continue
		case err != nil:
			return err
		}
		p.loaded = append(p.loaded, f.Path)
		entries, err := ParseTuned(f.Path, f.Text)
		if err != nil {
			return err
		}
		if e, ok := Last(entries, "main", "include"); ok {
			if strings.Contains(e.Value, "${") {
				return fmt.Errorf("%s: files alone do not show which profile include=%s names", e.At(), e.Value)
			}
			if err := p.loadProfiles(strings.FieldsFunc(e.Value, func(r rune) bool { return strings.ContainsRune(",; \t", r) })); err != nil {
				return err
			}
		}
		p.mergeEntries(entries)
	}
	return nil
}

func (p *tunedProfile) findProfile(name string) (File, error) {
	for _, dir := range tunedDirs() {
		f, null, err := read(p.files, dir+"/"+path.Base(name)+"/tuned.conf")
		if errors.Is(err, fs.ErrNotExist) || null {
			continue
		}
		if len(f.Text) > mostProfile {
			return f, file.TooLarge(f.Path, mostProfile)
		}
		return f, err
	}
	return File{}, fmt.Errorf("TuneD profile %q: %w in %s", name, fs.ErrNotExist, strings.Join(tunedDirs(), ", "))
}

func (p *tunedProfile) mergeEntries(entries []Entry) {
	var seen []string
	for _, e := range entries {
		unit := p.units[e.Section]
		replaces := false
		if !slices.Contains(seen, e.Section) {
			seen = append(seen, e.Section)
			again, _ := Last(entries, e.Section, "replace")
			replaces, _ = ParseBool(again.Value)
		}
		if unit == nil || replaces {
			if unit == nil {
				p.order = append(p.order, e.Section)
			}
			unit = &tunedUnit{kind: e.Section}
			p.units[e.Section] = unit
		}
		unit.setOption(e)
	}
}

func (u *tunedUnit) setOption(e Entry) {
	switch e.Key {
	case "type":
		u.kind = e.Value
	case "enabled":
		on, valid := ParseBool(e.Value)
		u.off = valid && !on
	case "uname_regex", "cpuinfo_regex", "devices_udev_regex":
		u.condition = e.Key + "=" + e.Value
	case "drop":
		gone := strings.FieldsFunc(e.Value, func(r rune) bool { return strings.ContainsRune(",; \t", r) })
		u.options = slices.DeleteFunc(u.options, func(o Entry) bool { return slices.Contains(gone, o.Key) })
	case "replace", "devices", "script_pre", "script_post", "priority":
	default:
		u.options = slices.DeleteFunc(u.options, func(o Entry) bool { return o.Key == e.Key })
		u.options = append(u.options, e)
	}
}

// ParseTuned reads a profile as Python's ConfigParser does for TuneD: a line that is indented
// deeper than its key continues the value, and a # after white space begins a comment.
func ParseTuned(name string, text []byte) ([]Entry, error) {
	var all []Entry
	var errs []error
	section, indent, open := "", 0, false
	n := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		n++
		if start := strings.TrimLeft(line, space); start == "" || start[0] == ';' || start[0] == '#' {
			continue
		}
		for i, r := range line {
			if r == '#' && strings.ContainsRune(space, rune(line[i-1])) {
				line = line[:i]
				break
			}
		}
		depth := len(line) - len(strings.TrimLeft(line, space))
		line = strings.Trim(line, space)
		key, value, assigns := strings.Cut(line, "=")
		key = strings.Trim(key, space)
		switch {
		case open && depth > indent:
			last := &all[len(all)-1]
			last.Value = strings.Trim(last.Value+"\n"+line, space)
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section, indent, open = line[1:len(line)-1], depth, false
		case !assigns || key == "" || section == "":
			errs = append(errs, fmt.Errorf("%s: not an assignment in a section", At(name, n)))
		default:
			all = append(all, Entry{section, key, strings.Trim(value, space+`"'`), name, n})
			indent, open = depth, true
		}
	}
	return all, errors.Join(errs...)
}

// tunedReapplies returns the parameters that TuneD resets after applying its profile.
func tunedReapplies(files Files) (keys []string, err error) {
	main, _, err := ReadIfAny(files, "/etc/tuned/tuned-main.conf")
	if err != nil {
		return nil, err
	}
	// The file lacks sections. TuneD warns about unreadable lines.
	settings, _ := ParseTuned("/etc/tuned/tuned-main.conf", append([]byte("[main]\n"), main...))
	if e, set := Last(settings, "main", "reapply_sysctl"); set {
		if on, valid := ParseBool(e.Value); valid && !on {
			return nil, nil
		}
	}
	found, err := Collect(files, []string{"/run/sysctl.d", "/etc/sysctl.d"}, ".conf")
	if err != nil {
		return nil, err
	}
	last, _, err := ReadIfAny(files, "/etc/sysctl.conf")
	for _, f := range append(found, File{"/etc/sysctl.conf", last}) {
		for line := range strings.Lines(string(f.Text)) {
			line = strings.Trim(line, space)
			if key, _, assigns := strings.Cut(line, "="); assigns && line[0] != '#' && line[0] != ';' {
				keys = append(keys, strings.ReplaceAll(strings.Trim(key, space), ".", "/"))
			}
		}
	}
	return keys, err
}
