package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// UdevRule is one rule of a udev rules file.
type UdevRule struct {
	Tokens []UdevToken
	File   string
	Line   int
}

// At returns file:line.
func (r UdevRule) At() string { return At(r.File, r.Line) }

// UdevToken is KEY{Attr}Op"Value".
type UdevToken struct{ Key, Attr, Op, Value string }

// ParseUdev reads a file of udev rules. A backslash joins the next line.
func ParseUdev(name string, text []byte) ([]UdevRule, error) {
	var all []UdevRule
	var errs []error
	for n, line := range joined(string(text)) {
		line = strings.Trim(line, space)
		if line == "" || line[0] == '#' {
			continue
		}
		rule := UdevRule{File: name, Line: n}
		for rest := line; rest != ""; {
			token, after, ok := udevToken(rest)
			if !ok {
				errs = append(errs, fmt.Errorf("%s: not a rule", At(name, n)))
				break
			}
			rule.Tokens = append(rule.Tokens, token)
			rest = strings.TrimLeft(after, space+",")
		}
		if rule.Tokens != nil {
			all = append(all, rule)
		}
	}
	return all, errors.Join(errs...)
}

func udevToken(s string) (t UdevToken, rest string, ok bool) {
	key, value, found := strings.Cut(s, `"`)
	if !found {
		return t, "", false
	}
	key = strings.TrimRight(key, "ei \t") // e"..." and i"..." are prefixes of the value
	i := strings.IndexAny(key, "=!+-:")
	if i < 0 {
		return t, "", false
	}
	t.Op = key[i:]
	t.Key, t.Attr, _ = strings.Cut(strings.TrimRight(key[:i], space), "{")
	t.Attr = strings.TrimSuffix(t.Attr, "}")
	if t.Key == "" || !slices.Contains([]string{"==", "!=", "=", "+=", "-=", ":="}, t.Op) {
		return t, "", false
	}
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == '\\' && i+1 < len(value) && value[i+1] == '"':
			i++
		case value[i] == '"':
			t.Value = strings.ReplaceAll(value[:i], `\"`, `"`)
			return t, value[i+1:], true
		}
	}
	return t, "", false
}

// UdevUnmanaged returns the rule that decides NetworkManager's property NM_UNMANAGED for a new
// virtual interface, and whether it sets the property. doubt lists the rules that would decide
// otherwise under a condition that files cannot decide.
func UdevUnmanaged(files Files, d Device) (by UdevRule, unmanaged bool, doubt []UdevRule, err error) {
	found, err := Collect(files, Dirs("udev/rules.d"), ".rules")
	for _, f := range found {
		rules, _ := ParseUdev(f.Path, f.Text)
		label := "" // skip the rules up to this label
		for _, r := range rules {
			if label != "" && !slices.Contains(r.Tokens, UdevToken{"LABEL", "", "=", label}) {
				continue
			}
			label = ""
			matches, certain := d.matchesRule(r)
			if !matches {
				continue
			}
			for _, t := range r.Tokens {
				switch {
				case t.Key == "GOTO" && certain:
					label = t.Value
				case t.Key != "ENV" || t.Attr != "NM_UNMANAGED" || t.Op != "=" && t.Op != ":=":
				case certain:
					by, unmanaged, doubt = r, t.Value == "1" || t.Value == "true", nil
				case (t.Value == "1" || t.Value == "true") != unmanaged:
					doubt = append(doubt, r)
				}
			}
		}
	}
	return by, unmanaged, doubt, err
}

// matchesRule reports whether every condition is true, and whether that is certain.
func (d Device) matchesRule(r UdevRule) (matches, certain bool) {
	known := map[string]string{
		"ACTION": "add", "SUBSYSTEM": "net", "KERNEL": d.Name, "ENV{INTERFACE}": d.Name, "ENV{ID_NET_DRIVER}": d.Kind,
		"DRIVER": "", "DRIVERS": "", "ENV{ID_BUS}": "", // a virtual interface has no device
		"ENV{DEVTYPE}": d.devType(),
	}
	certain = true
	for _, t := range r.Tokens {
		if t.Op != "==" && t.Op != "!=" {
			continue
		}
		name := t.Key
		if t.Attr != "" {
			name += "{" + t.Attr + "}"
		}
		have, is := known[name]
		if !is {
			certain = false
			continue
		}
		if slices.ContainsFunc(strings.Split(t.Value, "|"), func(p string) bool { return match(p, have) }) != (t.Op == "==") {
			return false, true
		}
	}
	return true, certain
}
