package service

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// starters are programs of images that write kubelet's files at the first boot and then start it, by a file that shows them.
func starters() []string {
	return []string{
		"/usr/bin/nodeadm", "/etc/eks/bootstrap.sh", "/opt/azure/containers/provision.sh", "/opt/azure/containers/provision_start.sh",
		"/etc/systemd/system/kops-configuration.service", "/opt/kops/bin/nodeup", "/home/kubernetes/bin/configure-helper.sh",
		"/etc/systemd/system/machine-config-daemon-firstboot.service", "/usr/bin/machine-config-daemon",
	}
}

// initializer returns the program that may write any file, or start any unit, at the first boot. certain means that it does.
func (j *judge) initializer() (name string, certain bool) {
	has := func(name string) bool {
		is, err := j.files.Exists(name)
		j.err = errors.Join(j.err, err)
		return is
	}
	for _, s := range starters() {
		if has(s) {
			return s, true
		}
	}
	for _, s := range []string{
		"/usr/bin/cloud-init", "/usr/bin/coreos-cloudinit", "/usr/lib/dracut/modules.d/30ignition", "/usr/bin/ignition",
	} {
		if has(s) {
			return s, false
		}
	}
	return "", false
}

// mayAppear reports whether another program may create a file before the unit starts; certain means that one does.
func (j *judge) mayAppear(name string) (certain, may bool) {
	// kubeadm join writes the last two.
	for _, dir := range []string{"/run", "/var/run", "/tmp", "/dev", "/proc", "/sys", "/etc/kubernetes", "/var/lib/kubelet"} {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return true, true
		}
	}
	fstab, _, err := config.ReadIfAny(j.files, "/etc/fstab")
	j.err = errors.Join(j.err, err)
	for line := range strings.Lines(string(fstab)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0][0] != '#' && f[1] != "/" && strings.HasPrefix(name+"/", strings.TrimRight(f[1], "/")+"/") {
			return true, true
		}
	}
	created, err := config.Collect(j.files, config.Dirs("tmpfiles.d")[:4], ".conf")
	j.err = errors.Join(j.err, err)
	for _, f := range created {
		if slices.Contains(strings.Fields(string(f.Text)), name) {
			return true, true
		}
	}
	if j.mentioned(name) != "" {
		return true, true
	}
	by, certain := j.initializer()
	return certain, by != ""
}

// mentioned returns the file of another unit whose text, or whose script, contains a text.
func (j *judge) mentioned(text string) string {
	return j.findUnit(func(content string, _ Unit) bool { return strings.Contains(content, text) },
		func(words string) bool { return strings.Contains(words, text) })
}

// starter returns the file of another unit that starts this one. One that is only ordered before or after it does not.
func (j *judge) starter() string {
	base := strings.TrimSuffix(j.Name, ".service")
	names := regexp.MustCompile(`(^|[\s/])` + regexp.QuoteMeta(base) + `(\.service)?(\s|$)`)
	return j.findUnit(func(_ string, other Unit) bool {
		return slices.ContainsFunc(other.Entries, func(e config.Entry) bool {
			starts := []string{"Wants", "Requires", "BindsTo", "Upholds", "OnSuccess", "OnFailure", "Unit", "Service", "Also"}
			return slices.Contains(starts, e.Key) &&
				slices.Contains(strings.Fields(e.Value), j.Name)
		})
	}, func(words string) bool {
		return strings.Contains(words, "start") && names.MatchString(words) || strings.Contains(words, "--now") && names.MatchString(words)
	})
}

// findUnit returns the file of another unit whose text, or one of whose commands, a function accepts.
func (j *judge) findUnit(accepts func(content string, other Unit) bool, runs func(words string) bool) string {
	kinds := []string{".service", ".path", ".timer", ".socket", ".target", ".mount"}
	seen := map[string]bool{j.Name: true}
	for _, dir := range Dirs() {
		names, err := config.ReadDirIfAny(j.files, dir)
		j.err = errors.Join(j.err, err)
		for _, name := range names {
			at := dir + "/" + name
			if seen[name] || !slices.Contains(kinds, path.Ext(name)) {
				continue
			}
			seen[name] = true
			content, found, err := config.ReadIfAny(j.files, at)
			if err != nil || !found {
				continue // a directory, or a dangling link
			}
			other := Unit{Name: name}
			if other.Entries, _ = config.ParseINI(at, content); accepts(string(content), other) {
				return at
			}
			for _, key := range []string{"ExecStartPre", "ExecStart", "ExecStartPost"} {
				for _, c := range other.commands(key) {
					if runs(strings.Join(c.words, " ")) || slices.ContainsFunc(flatten(j.files, c.words, 0), func(s simple) bool {
						return runs(strings.Join(slices.Concat(s.words, s.writes), " "))
					}) {
						return at
					}
				}
			}
		}
	}
	return ""
}

// checkEnabled: a unit that nothing wants and nothing starts does not run after a boot.
func (j *judge) checkEnabled() {
	if j.Path == "" {
		return
	}
	base := strings.TrimSuffix(j.Name, ".service")
	seen := map[string]bool{j.Name: true}
	for _, dir := range Dirs() {
		names, err := config.ReadDirIfAny(j.files, dir)
		j.err = errors.Join(j.err, err)
		for _, name := range names {
			switch suffix := path.Ext(name); suffix {
			case ".wants", ".requires", ".upholds":
				below, err := config.ReadDirIfAny(j.files, dir+"/"+name)
				j.err = errors.Join(j.err, err)
				if slices.Contains(below, j.Name) {
					return
				}
			case ".path", ".timer", ".socket":
				if strings.TrimSuffix(name, suffix) == base {
					return
				}
			}
			if seen[name] || path.Ext(name) != ".service" {
				continue
			}
			seen[name] = true
			if to, err := j.files.ReadLink(dir + "/" + name); err == nil && path.Base(to) == j.Name {
				return // an alias
			}
		}
	}
	presets, err := config.Collect(j.files, config.Dirs("systemd/system-preset")[:4], ".preset")
	j.err = errors.Join(j.err, err)
	for _, f := range presets {
		if regexp.MustCompile(`(?m)^\s*enable\s+` + regexp.QuoteMeta(j.Name)).Match(f.Text) {
			return
		}
	}
	if j.starter() != "" {
		return
	}
	by, certain := j.initializer()
	if certain {
		return
	}
	j.faults = append(j.faults, Fault{At: j.Path, Text: "in no .wants directory, and no unit starts it", Enable: true, Doubt: by != "",
		What: j.Name + " is enabled nowhere: it does not start at boot", Remedy: "run `systemctl enable " + j.Name + "`"})
}

// checkRequired: systemd refuses to start a unit that requires one that does not exist or is masked.
func (j *judge) checkRequired() {
	wanted := j.list("Unit", "Requires")
	wanted = append(append(wanted, j.list("Unit", "BindsTo")...), j.list("Unit", "Requisite")...)
	for _, e := range wanted {
		for _, name := range strings.Fields(config.Specifiers(j.Name).Replace(e.Value)) {
			if !slices.Contains([]string{".service", ".socket", ".target", ".timer", ".path"}, path.Ext(name)) || strings.Contains(name, "%") {
				continue // systemd makes slices, devices and mounts itself
			}
			u, err := Read(j.files, name)
			j.err = errors.Join(j.err, err)
			sysv, _ := j.files.Exists("/etc/init.d/" + strings.TrimSuffix(name, ".service"))
			switch {
			case err != nil || u.Path != "" && !u.Masked || sysv:
			case u.Masked:
				j.add(e, j.Name+" requires "+name+", which is masked", "run `systemctl unmask "+name+"`, or write Wants= instead of "+e.Key+"=")
			default:
				_, certain := j.initializer()
				if j.add(e, j.Name+" requires "+name+", which does not exist", "install it, or correct "+e.Key+"="); certain {
					j.faults[len(j.faults)-1].Doubt = true
				}
			}
		}
	}
}

// checkConditions finds conditions that fail at every boot. One that another program may make true is not a fault.
func (j *judge) checkConditions() {
	triggers, failed := 0, []config.Entry(nil)
	for _, e := range j.Entries {
		kind := strings.TrimPrefix(strings.TrimPrefix(e.Key, "Condition"), "Assert")
		if e.Section != "Unit" || kind == e.Key {
			continue
		}
		text, trigger := strings.CutPrefix(e.Value, "|")
		name, negated := strings.CutPrefix(text, "!")
		if trigger {
			triggers++
		}
		known := []string{"PathExists", "PathIsDirectory", "FileNotEmpty", "FileIsExecutable", "DirectoryNotEmpty"}
		if !slices.Contains(known, kind) || !path.IsAbs(name) || strings.Contains(name, "%") {
			continue
		}
		_, exists := j.exists(name)
		_, later := j.mayAppear(name)
		switch {
		case exists != negated, !exists && later, j.mends.Writes(name) != "":
		case negated && !strings.HasPrefix(name, "/usr/") && j.mentioned(name) != "":
		case trigger:
			failed = append(failed, e)
		default:
			j.add(e, e.Key+"="+e.Value+" is not met, so systemd skips the start of "+j.Name, "remove the condition, or make it true")
		}
	}
	if triggers > 0 && len(failed) == triggers {
		j.add(failed[0], "none of its conditions with | is met, so systemd skips the start of "+j.Name, "remove the conditions, or make one true")
	}
}

// checkRetries: a held unit must be started again, for as long as it takes.
func (j *judge) checkRetries() {
	gated := slices.ContainsFunc(j.commands("ExecStartPre"), command.isGate)
	limit := j.last("Unit", "StartLimitIntervalSec")
	for _, e := range j.Entries { // the older names of the same option
		if e.Key == "StartLimitIntervalSec" && e.Section == "Unit" || e.Key == "StartLimitInterval" {
			limit = e
		}
	}
	restart := j.last("Service", "Restart")
	const remedy = "remove the line, or rename its file so that it sorts before 10-nodegate.conf"
	switch {
	case !gated:
	case limit.Value != "" && strings.Trim(limit.Value, "0smhd ") != "":
		j.add(limit, "a held "+j.Name+" is not started again after its start limit", remedy)
	case slices.Contains([]string{"no", "on-success", "on-abort", "on-watchdog", "on-abnormal"}, restart.Value):
		j.add(restart, "a held "+j.Name+" is not started again", remedy)
	}
}
