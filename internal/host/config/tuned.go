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
	If      string // the options or variables that decide whether TuneD writes it, or ""
}

type tunedProfile struct {
	loaded  []string
	entries []Entry
	unread  error
}

// TunedSysctls returns the parameters of TuneD's active profiles in its order: later ones win. An error beside settings names an included
// profile that files alone do not show; an error alone, one that cannot be read.
func TunedSysctls(files Files) (all []TunedSetting, err error) {
	active, _, err := ReadIfAny(files, "/etc/tuned/active_profile")
	late, _, lateErr := ReadIfAny(files, "/etc/tuned/post_loaded_profile")
	var p tunedProfile
	if err = errors.Join(err, lateErr, p.load(files, strings.Fields(string(active)+" "+string(late)))); err != nil {
		return nil, err
	}
	depends := map[string]string{} // section -> the options on which its values depend
	for _, e := range p.entries {
		if slices.Contains([]string{"type", "enabled", "replace", "drop", "uname_regex", "cpuinfo_regex", "devices_udev_regex"}, e.Key) {
			depends[e.Section] += " " + e.Key + "=" + e.Value
		}
	}
	for _, e := range p.entries {
		if e.Section != "sysctl" && !strings.Contains(depends[e.Section], " type=sysctl") {
			continue
		}
		s := TunedSetting{Setting{Key: SysctlPath(e.Key), Value: e.Value, File: e.File, Line: e.Line}, strings.TrimSpace(depends[e.Section])}
		if strings.Contains(e.Value, "${") {
			s.If = e.Value
		}
		all = append(all, s)
	}
	return all, p.unread
}

// TunedReapplies reports whether TuneD applies /run/sysctl.d, /etc/sysctl.d and /etc/sysctl.conf after its profile.
func TunedReapplies(files Files) (bool, error) {
	text, _, err := ReadIfAny(files, "/etc/tuned/tuned-main.conf")
	options, _ := parseTuned(File{Text: append([]byte("[main]\n"), text...)}) // TuneD warns about unreadable lines
	reapply, _ := Last(options, "main", "reapply_sysctl")
	on, set := ParseBool(reapply.Value)
	return on || !set, err
}

// mostProfile bounds a profile, in bytes, because each option is compared with each line of sysctl.d.
const mostProfile = 64 << 10

// load reads profiles, each after those that it includes. TuneD does not include a profile twice.
func (p *tunedProfile) load(files Files, names []string) error {
	for _, name := range names {
		name, optional := strings.CutPrefix(name, "-")
		if strings.ContainsAny(name, "${}") {
			p.unread = errors.Join(p.unread, fmt.Errorf("files alone do not show which profile include=%s names", name))
			continue
		}
		name = "/" + path.Base(name)
		dirs := []string{"/etc/tuned/profiles" + name, "/etc/tuned" + name, "/usr/lib/tuned/profiles" + name, "/usr/lib/tuned" + name}
		f, _, err := First(files, dirs, "tuned.conf")
		switch {
		case err != nil:
			return err
		case f.Path == "" && optional, slices.Contains(p.loaded, f.Path):
			continue
		case f.Path == "":
			return fmt.Errorf("TuneD's profile: %w: tuned.conf in %s", fs.ErrNotExist, strings.Join(dirs, ", "))
		case len(f.Text) > mostProfile:
			return file.TooLarge(f.Path, mostProfile)
		}
		entries, err := parseTuned(f)
		if err != nil {
			return err
		}
		p.loaded = append(p.loaded, f.Path)
		e, _ := Last(entries, "main", "include")
		if err := p.load(files, strings.FieldsFunc(e.Value, func(r rune) bool { return strings.ContainsRune(",; \t", r) })); err != nil {
			return err
		}
		p.entries = append(p.entries, entries...)
	}
	return nil
}

// parseTuned reads a profile, in which a # after white space begins a comment.
func parseTuned(f File) ([]Entry, error) {
	entries, err := ParseINI(f.Path, f.Text)
	for i, e := range entries {
		value, _, _ := strings.Cut(strings.ReplaceAll(e.Value, "\t#", " #"), " #")
		entries[i].Value = strings.Trim(value, space+`"'`)
	}
	return entries, err
}
