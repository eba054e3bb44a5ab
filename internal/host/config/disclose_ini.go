package config

import (
	"regexp"
	"slices"
	"strings"
)

// discloseINI returns an .ini file with the values that value returns. Each line keeps its number.
// value gets the text after the equals sign, of a joined line too.
func discloseINI(text string, hide func(string) string, value func(section, key, value string) string) string {
	var out strings.Builder
	section, lines := "", 0
	var begun strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		lines++
		if start := strings.TrimLeft(line, space); start != "" && (start[0] == '#' || start[0] == ';') {
			continue
		}
		if (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1 {
			begun.WriteString(line[:len(line)-1] + " ")
			continue
		}
		line = begun.String() + line
		begun.Reset()
		trimmed := strings.Trim(line, space)
		key, said, assigns := strings.Cut(line, "=")
		name := strings.Trim(key, space)
		switch {
		case trimmed == "":
		case trimmed[0] == '[':
			if section = strings.Trim(trimmed, "[]"); !regexp.MustCompile(`^\[[\w .:+-]+\]$`).MatchString(trimmed) {
				trimmed = strings.ReplaceAll(trimmed, section, hide(section))
			}
			out.WriteString(trimmed)
		case !assigns || name == "":
			out.WriteString(hide(trimmed)) // still not an assignment
		default:
			rest := strings.TrimLeft(said, space)
			out.WriteString(key + "=" + said[:len(said)-len(rest)] + value(section, name, strings.TrimRight(rest, space)))
		}
		out.WriteString(strings.Repeat("\n", lines))
		lines = 0
	}
	all := out.String()
	return strings.TrimSuffix(all, "\n") // the last line of the text has no end
}

// unitValue is for the unit of a kubelet or k3s and its drop-ins.
func (d *Discloser) unitValue(section, key, value string) string {
	if isUnitKey(section, key) && regexp.MustCompile(`^[\w@%.:/~!|+*=, -]*$`).MatchString(value) {
		return value
	}
	if section == "Mount" && key == "Options" {
		return d.mountOptions(value)
	}
	if section != "Service" || value == "" {
		return d.Hide(value)
	}
	switch key {
	case "ExecStart":
		return d.command(value)
	case "ExecStartPre", "ExecCondition":
		return d.preparation(value)
	case "Environment":
		words := SplitWords(value)
		for i, w := range words {
			name, said, assigns := strings.Cut(w, "=")
			if !assigns || !regexp.MustCompile(`^[A-Za-z_]\w*$`).MatchString(name) { // such as the rest of a value without quotes
				words[i] = d.Hide(w)
				continue
			}
			words[i] = quoteWord(name + "=" + d.variable(said))
		}
		return strings.Join(words, " ")
	case "EnvironmentFile":
		if isPlainPath(strings.NewReplacer("*", "", "?", "", "[", "", "]", "").Replace(strings.TrimPrefix(value, "-"))) {
			return value
		}
		return d.Hide(value)
	}
	return d.Hide(value)
}

// isUnitKey reports whether the value of a unit's key is the name of a unit, account, file or kind, which kubelet.unit judges.
func isUnitKey(section, key string) bool {
	switch section {
	case "Unit":
		return strings.HasPrefix(key, "Condition") || strings.HasPrefix(key, "Assert") || strings.HasPrefix(key, "StartLimit") ||
			slices.Contains([]string{
				"After", "Before", "BindsTo", "Conflicts", "DefaultDependencies", "OnFailure", "OnSuccess", "PartOf", "Requires", "Requisite",
				"RequiresMountsFor", "Upholds", "Wants", "RefuseManualStart",
			}, key)
	case "Service":
		return slices.Contains([]string{
			"BusName", "DynamicUser", "Group", "RemainAfterExit", "Restart", "RestartSec", "RootDirectory", "RootImage", "StartLimitBurst",
			"StartLimitInterval", "SupplementaryGroups", "TimeoutSec", "TimeoutStartSec", "Type", "User", "WorkingDirectory",
			"RuntimeDirectory", "Slice", "StateDirectory", "CacheDirectory", "LogsDirectory", "ConfigurationDirectory", "NotifyAccess",
		}, key)
	case "Install":
		return slices.Contains([]string{"Alias", "Also", "DefaultInstance", "RequiredBy", "WantedBy"}, key)
	case "Mount":
		return key == "Where" || key == "Type"
	case "Timer", "Path", "Socket":
		return key == "Unit" || key == "Service"
	}
	return false
}

// preparation discloses a command that runs before the service: its programs, paths and the words that decide whether it starts or
// changes something. Text between quotes is code of a shell.
func (d *Discloser) preparation(line string) string {
	words := SplitWords(line)
	show := func(word string) string {
		if slices.Contains(preparationWords(), strings.TrimLeft(word, "+-:!@")) || slices.Contains(preparationWords(), word) {
			return word
		}
		if isPath(strings.NewReplacer("*", "", "?", "").Replace(word)) {
			return word
		}
		return plainWord(word, d.hideWord)
	}
	for i, w := range words {
		if strings.ContainsAny(w, space) {
			w = regexp.MustCompile(`[^\s;&|()<>"'`+"`"+`]+`).ReplaceAllStringFunc(w, show)
		} else {
			w = show(w)
		}
		words[i] = quoteWord(w)
	}
	return strings.Join(words, " ")
}

// preparationWords are the programs, sub-commands and flags that decide what a command before the service does.
func preparationWords() []string {
	return []string{
		"-c", "-d", "-f", "-p", "-r", "-rf", "-fr", "-R", "-s", "-i", "-t", "-it", "-dit", "-m", "-q", "-e", "--detach", "--rm", "--wait",
		"--scope",
		"--pipe", "--recursive", "--force", "--now", "--no-block", "--name", "-delete", "--",
		"sh", "bash", "dash", "env", "timeout", "nice", "sudo", "exec", "if", "then", "else", "fi", "do", "done", "for", "while", "wait",
		"test", "[", "[[",
		"]", "]]", "docker", "podman", "nerdctl", "ctr", "runc", "crun", "crictl", "machinectl", "systemd-run", "systemctl", "service",
		"daemonize",
		"setsid", "start-stop-daemon", "run", "start", "restart", "stop", "rmi", "pull", "kill", "create", "compose", "up", "down", "true",
		"false",
		"rm", "unlink", "shred", "find", "cp", "mv", "install", "ln", "rsync", "tar", "mkdir", "unzip", "touch", "tee", "sed", "dd", "ls",
		"cat", "grep",
		"stat", "echo", "printf", "head", "tail", "wc", "mount", "umount", "mountpoint", "chmod", "chown", "sleep", "modprobe", "sysctl",
		"iptables",
		"logger", "swapoff", "chcon", "restorecon", "cd", "set",
	}
}

// command discloses a command line of a unit.
func (d *Discloser) command(line string) string {
	words := SplitWords(line)
	disclosedWords(words, d.hideWord)
	for i, w := range words {
		words[i] = quoteWord(w)
	}
	return strings.Join(words, " ")
}

// variable discloses the value of a variable, which may be a part of a command line.
func (d *Discloser) variable(value string) string {
	words := SplitWords(value)
	disclosedWords(words, d.hideWord)
	for i, w := range words {
		words[i] = quoteInner(w)
	}
	return strings.Join(words, " ")
}

// hideWord hides a word of a command line. A specifier in it remains one: checks do not run a
// command with a specifier that they cannot resolve.
func (d *Discloser) hideWord(word string) string {
	hidden := d.Hide(word)
	if hasSpecifier := regexp.MustCompile(`%[a-zA-Z]`).FindString(Specifiers("kubelet.service").Replace(word)); hasSpecifier != "" {
		return hidden + hasSpecifier
	}
	return hidden
}

// quoteWord returns a word as it is written in a unit.
func quoteWord(word string) string {
	if word != "" && !strings.ContainsAny(word, space+`"'\`) {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// quoteInner returns a word of a variable's value, whose quotes must not end the value.
func quoteInner(word string) string {
	if word != "" && !strings.ContainsAny(word, space+`"'\`) {
		return word
	}
	return `'` + strings.NewReplacer(`\`, "", `'`, "", `"`, "").Replace(word) + `'`
}

// variables discloses a file of variables. A line of base64 may look like a variable with a name in
// mixed case.
func (d *Discloser) variables(text string) string {
	var out strings.Builder
	all := environmentFile(text)
	for _, name := range sortedKeys(all) {
		if regexp.MustCompile(`^([A-Z_][A-Z0-9_]*|[a-z_][a-z0-9_]*)$`).MatchString(name) {
			out.WriteString(name + `="` + d.variable(all[name]) + "\"\n")
		}
	}
	return out.String()
}

// networkValue is for .link, .network, networkd.conf and logind.conf.
func (d *Discloser) networkValue(section, key, value string) string {
	switch {
	case section == "Match", section == "Link" && key == "MACAddressPolicy":
		return value
	case section == "Login" && key == "InhibitDelayMaxSec":
		return plainValue(value, d.Hide)
	case section == "Network" && slices.Contains([]string{
		"IPForward", "IPv4Forwarding", "IPv6Forwarding", "ManageForeignRoutes", "ManageForeignRoutingPolicyRules", "ManageForeignNextHops",
	}, key):
		return plainValue(value, d.Hide)
	}
	return d.Hide(value)
}

// networkManagerValue is for NetworkManager.conf, not for its connections.
func (d *Discloser) networkManagerValue(section, key, value string) string {
	switch {
	case section == "keyfile" && strings.HasPrefix(key, "unmanaged-devices"), strings.HasPrefix(section, "device") && key == "match-device":
		return value
	case strings.HasPrefix(section, "device") && key == "managed":
		return plainValue(value, d.Hide)
	}
	return d.Hide(value)
}
