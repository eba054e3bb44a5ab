package config

import (
	"regexp"
	"slices"
	"strings"
)

// eachLine returns a text with each line replaced. Comments lose their text.
func eachLine(text string, replace func(line string) string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch start := strings.TrimLeft(line, space); {
		case start == "":
		case start[0] == '#' || start[0] == ';':
			lines[i] = start[:1]
		default:
			lines[i] = replace(line)
		}
	}
	return strings.Join(lines, "\n")
}

// joinedLines is eachLine for files in which a backslash joins the next line. Each joined line
// keeps the number of its first line.
func joinedLines(text string, replace func(line string) string) string {
	var out strings.Builder
	at := 1
	for n, line := range joined(text) {
		for ; at < n; at++ {
			out.WriteByte('\n')
		}
		out.WriteString(eachLine(line, replace))
	}
	if strings.HasSuffix(text, "\n") {
		out.WriteByte('\n')
	}
	return out.String()
}

// kernelArguments keeps nodegate's own argument.
func kernelArguments(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		if w != "nodegate=off" {
			words[i] = placeholder
		}
	}
	return strings.Join(words, " ")
}

// modprobeLine discloses the names of modules, and a command only if it loads nothing.
func (d *Discloser) modprobeLine(line string) string {
	command, rest := splitWord(line)
	module, rest := splitWord(rest)
	if !regexp.MustCompile(`^[\w.:*?!^\[\]-]*$`).MatchString(module) {
		module = d.Hide(module)
	}
	switch m := (Modprobe{Command: command, Rest: rest}); command {
	case "install":
		if !m.Disables() {
			rest = d.Hide(rest)
		}
		rest, _, _ = strings.Cut(rest, " #")
	case "blacklist", "options", "alias", "remove", "softdep", "weakdep":
		rest = d.Hide(rest)
	default:
		command, module, rest = d.Hide(command), d.Hide(module), d.Hide(rest)
	}
	return strings.TrimRight(command+" "+module+" "+rest, " ")
}

// sysctlText discloses the settings, and of the comments those with which nodegate's own file lists
// what it leaves to apply.
func (d *Discloser) sysctlText(text string) string {
	later := regexp.MustCompile("^# ([\\w./*-]+): .*(; only `nodegate apply` )")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if m := later.FindStringSubmatch(line); m != nil {
			lines[i] = "# " + m[1] + ": " + m[2]
			continue
		}
		lines[i] = eachLine(line, func(line string) string {
			if key, _, assigns := strings.Cut(line, "="); assigns && isSysctl(strings.Trim(key, space+"-")) || strings.HasPrefix(line,
				"-") && !assigns {
				return line
			}
			if key, value, assigns := strings.Cut(line, "="); assigns {
				return key + "=" + d.Hide(strings.Trim(value, space))
			}
			return d.Hide(strings.Trim(line, space))
		})
	}
	return strings.Join(lines, "\n")
}

// isSysctl reports whether a key is in one of the kernel's directories of parameters. Their values
// are readable for every user in /proc/sys.
func isSysctl(key string) bool {
	return regexp.MustCompile(`^(abi|crypto|debug|dev|fs|kernel|net|sunrpc|user|vm|xpfs)[./][\w./*?\[\]@:-]+$`).MatchString(key)
}

// mountLine discloses the mount point, the type and the names of options.
func (d *Discloser) mountLine(line string) string {
	f := strings.Fields(line)
	if len(f) < 4 {
		return d.Hide(strings.Trim(line, space))
	}
	if scheme, rest, is := strings.Cut(f[0], "="); is && regexp.MustCompile(`^[A-Z]+$`).MatchString(scheme) {
		f[0] = scheme + "=" + d.Hide(rest)
	} else if f[0] != f[2] && !isPath(f[0]) {
		f[0] = d.Hide(f[0])
	}
	f[3] = d.mountOptions(f[3])
	for i := 4; i < len(f); i++ {
		f[i] = plainValue(f[i], d.Hide)
	}
	return strings.Join(f, " ")
}

// mountOptions discloses the names of mount options.
func (d *Discloser) mountOptions(text string) string {
	options := strings.Split(text, ",")
	for i, o := range options {
		name, value, assigns := strings.Cut(o, "=")
		switch {
		case !regexp.MustCompile(`^[a-z][a-z0-9_.-]*$`).MatchString(name):
			options[i] = d.Hide(o)
		case assigns && slices.Contains([]string{"mode", "size", "errors", "x-systemd.device-timeout", "nr_inodes"}, name):
			options[i] = name + "=" + plainValue(value, d.Hide)
		case assigns:
			options[i] = name + "=" + d.Hide(value)
		}
	}
	return strings.Join(options, ",")
}

// udevLine discloses the conditions that checks evaluate, and what decides NM_UNMANAGED.
func (d *Discloser) udevLine(line string) string {
	rest := strings.Trim(line, space)
	var out []string
	for rest != "" {
		t, after, ok := udevToken(rest)
		if !ok {
			out = append(out, d.Hide(rest))
			break
		}
		name := t.Key
		if t.Attr != "" {
			name += "{" + t.Attr + "}"
		}
		if !slices.Contains([]string{
			"ACTION", "SUBSYSTEM", "KERNEL", "ENV{INTERFACE}", "ENV{ID_NET_DRIVER}", "DRIVER", "DRIVERS", "ENV{ID_BUS}", "ENV{DEVTYPE}",
			"ENV{NM_UNMANAGED}", "LABEL", "GOTO",
		}, name) {
			t.Value = d.Hide(t.Value)
		}
		if !regexp.MustCompile(`^[A-Z]+(\{([A-Z0-9_]+|[a-z0-9_/*$:.-]+)\})?$`).MatchString(name) {
			name = d.Hide(name)
		}
		out = append(out, name+t.Op+`"`+strings.ReplaceAll(t.Value, `"`, `\"`)+`"`)
		rest = strings.TrimLeft(after, space+",")
	}
	return strings.Join(out, ", ")
}

// udevProperties keeps the property that checks read.
func udevProperties(text string) string {
	return eachLine(text, func(line string) string {
		if strings.HasPrefix(line, "E:NM_UNMANAGED=") {
			return "E:NM_UNMANAGED=" + plainValue(strings.TrimSpace(line[len("E:NM_UNMANAGED="):]), func(string) string { return placeholder })
		}
		return ""
	})
}

// resolvers keeps the addresses of name servers.
func resolvers(text string) string {
	return eachLine(text, func(line string) string {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			return "nameserver " + plainValue(f[1], func(string) string { return placeholder })
		}
		return ""
	})
}

// tunedText discloses the sysctls of a profile, and the keys that decide which sections apply.
func (d *Discloser) tunedText(text string) string {
	depth, shown := 0, false
	return eachLine(text, func(line string) string {
		indent := line[:len(line)-len(strings.TrimLeft(line, space))]
		trimmed := strings.Trim(line, space)
		key, value, assigns := strings.Cut(trimmed, "=")
		name := strings.Trim(key, space)
		switch {
		case depth > 0 && len(indent) >= depth: // continues the value of a key
			if !shown {
				trimmed = d.Hide(trimmed)
			}
			return indent + trimmed
		case trimmed[0] == '[' && strings.HasSuffix(trimmed, "]"):
			depth = 0
			if !regexp.MustCompile(`^\[[\w.-]+\]$`).MatchString(trimmed) {
				trimmed = "[" + d.Hide(strings.Trim(trimmed, "[]")) + "]"
			}
			return indent + trimmed
		case !assigns || name == "":
			return indent + d.Hide(trimmed)
		}
		depth = len(indent) + 1
		shown = isSysctl(name) || slices.Contains([]string{
			"include", "type", "enabled", "replace", "drop", "uname_regex", "cpuinfo_regex", "devices_udev_regex", "reapply_sysctl", "priority",
		}, name)
		if !regexp.MustCompile(`^[a-z][a-z0-9_./-]*$`).MatchString(name) {
			key = d.Hide(name)
		}
		if !shown {
			value = " " + d.Hide(strings.Trim(value, space))
		}
		return indent + key + "=" + value
	})
}

// profileNames keeps the names of TuneD's profiles.
func (d *Discloser) profileNames(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		if !regexp.MustCompile(`^-?[a-z][a-z0-9_.-]*$`).MatchString(w) {
			words[i] = d.Hide(w)
		}
	}
	return strings.Join(words, " ")
}

// containerLog keeps the times, and the message of Calico's agent about a set that it cannot read.
func containerLog(text string) string {
	stamp := regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]{5}) `)
	message := regexp.MustCompile(`incompatible: settype [a-z]+:[a-z,]+ with revision \d+ not supported by userspace`)
	return eachLine(text, func(line string) string { return stamp.FindString(line) + message.FindString(line) })
}

// flannelLine discloses the MTU of flannel's tunnel.
func flannelLine(line string) string {
	if regexp.MustCompile(`^FLANNEL_MTU=[0-9]{1,5}$`).MatchString(line) {
		return line
	}
	return placeholder
}
