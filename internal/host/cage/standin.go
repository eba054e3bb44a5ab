package cage

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nodegate/internal/host/file"
)

// standIn is systemctl or service in the cage. A unit of Type=oneshot only runs a command, which runs here. firewalld, which writes
// its rules when it starts, gets a bus of its own. All others are written down.
func standIn(name string, args []string) int {
	words := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	if name == "service" && len(words) > 1 {
		words[0], words[1] = words[1], words[0]
	}
	verb, names := name, words // reboot, shutdown: links to systemctl
	if name == "service" || name == "systemctl" {
		verb, names = "", nil
		if len(words) > 0 {
			verb, names = words[0], words[1:]
		}
	}
	known := map[string]string{}
	text, _ := file.Read(private+"/known", 8<<20)
	_ = json.Unmarshal(text, &known)
	action := map[string]string{"start": "start", "stop": "stop", "restart": "restart", "reload": "reload", "try-restart": "restart",
		"condrestart": "restart", "force-reload": "restart", "reload-or-restart": "restart", "try-reload-or-restart": "restart",
		"reload-or-try-restart": "restart"}[verb]
	if slices.Contains(args, "--now") {
		action = map[string]string{"enable": "start", "reenable": "start", "disable": "stop", "mask": "stop"}[verb]
	}
	rc := 0
	switch verb {
	case "", "is-active", "is-failed", "is-enabled", "is-system-running", "status", "show", "cat", "list-units", "list-unit-files",
		"list-timers", "list-sockets", "list-dependencies", "get-default":
		return answer(verb, args, names, known)
	case "enable", "reenable", "disable", "mask", "unmask", "preset", "daemon-reload", "daemon-reexec", "link", "set-default":
		for _, unit := range append(names, "")[:max(len(names), 1)] {
			note(verb, unit, Later)
		}
	default:
		if action == "" {
			note(verb, strings.Join(names, " "), NotRun)
		}
	}
	for _, unit := range names {
		if action != "" {
			rc = max(rc, act(action, full(unit)))
		}
	}
	return rc
}

func full(unit string) string {
	if strings.Contains(unit, ".") {
		return unit
	}
	return unit + ".service"
}

func note(verb, unit, how string) {
	if f, err := os.OpenFile(private+"/units", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644); err == nil {
		defer f.Close()
		_ = json.NewEncoder(f).Encode(Unit{verb, unit, how})
	}
}

// answer prints the state that systemd, asked outside, gave each unit.
func answer(verb string, args, names []string, known map[string]string) (rc int) {
	if verb == "list-units" {
		for unit, state := range known {
			fmt.Println(unit, "loaded", state, state)
		}
	}
	for _, unit := range names {
		unit = full(unit)
		state, loaded := known[unit]
		if _, there := load(unit); there || loaded {
			loaded = true
		}
		if state == "" {
			state = "inactive"
		}
		switch verb {
		case "is-enabled":
			wanted, _ := filepath.Glob("/etc/systemd/system/*/" + unit)
			if state = "enabled"; len(wanted) == 0 {
				state, rc = "disabled", 1
			}
		case "show":
			if !slices.Contains(args, "--value") {
				state = "ActiveState=" + state + "\nLoadState=" + map[bool]string{true: "loaded", false: "not-found"}[loaded]
			}
		default:
			if state != "active" {
				rc = 3
			}
		}
		if !slices.Contains(args, "--quiet") && !slices.Contains(args, "-q") {
			fmt.Println(state)
		}
	}
	return rc
}

// act does one action to one unit and returns systemctl's exit code.
func act(action, unit string) int {
	settings, there := load(unit)
	switch {
	case !there:
		note(action, unit, Absent)
		fmt.Fprintf(os.Stderr, "Unit %s not found.\n", unit)
		return 5
	case unit == "firewalld.service" && action != "stop" && firewalld():
		note(action, unit, Ran)
		return 0
	case last(settings["Type"]) != "oneshot":
		note(action, unit, NotRun)
		return 0
	}
	note(action, unit, Ran)
	steps := map[string]string{"start": "ExecStartPre ExecStart ExecStartPost", "stop": "ExecStop ExecStopPost", "reload": "ExecReload",
		"restart": "ExecStop ExecStopPost ExecStartPre ExecStart ExecStartPost"}[action]
	for _, step := range strings.Fields(steps) {
		for _, line := range settings[step] {
			cmd := exec.Command("/bin/sh", "-c", strings.TrimLeft(line, "-@+!:"))
			cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, append(os.Environ(), variables(settings)...)
			if err := cmd.Run(); err != nil && !strings.HasPrefix(line, "-") {
				fmt.Fprintf(os.Stderr, "Job for %s failed: %v\n", unit, err)
				return 1
			}
		}
	}
	return 0
}

func last(values []string) string { return append([]string{""}, values...)[len(values)] }

// variables returns a unit's environment.
func variables(settings map[string][]string) (all []string) {
	for _, line := range settings["Environment"] {
		for _, one := range strings.Fields(line) {
			all = append(all, strings.Trim(one, `"'`))
		}
	}
	for _, name := range settings["EnvironmentFile"] {
		text, _ := file.Read(strings.TrimPrefix(name, "-"), 1<<20)
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
				all = append(all, key+"="+strings.Trim(value, `"'`))
			}
		}
	}
	return all
}

// load returns a unit's settings, with its drop-ins.
func load(unit string) (map[string][]string, bool) {
	const dirs = "/etc/systemd/system /run/systemd/system /usr/local/lib/systemd/system /usr/lib/systemd/system /lib/systemd/system"
	stem, kind := strings.TrimSuffix(unit, filepath.Ext(unit)), filepath.Ext(unit)
	template, instance, _ := strings.Cut(stem, "@")
	var text []byte
	for _, name := range []string{unit, template + "@" + kind} {
		for _, dir := range strings.Fields(dirs) {
			if len(text) == 0 {
				text, _ = file.Read(dir+"/"+name, 1<<20)
			}
		}
	}
	if len(text) == 0 {
		return nil, false
	}
	for _, dir := range slices.Backward(strings.Fields(dirs)) {
		more, _ := filepath.Glob(dir + "/" + unit + ".d/*.conf")
		for _, name := range more {
			b, _ := file.Read(name, 1<<20)
			text = append(append(text, '\n'), b...)
		}
	}
	settings := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if value == "" {
			delete(settings, key)
			continue
		}
		value = strings.NewReplacer("%%", "%", "%i", instance, "%I", instance, "%n", unit, "%p", template).Replace(value)
		settings[key] = append(settings[key], value)
	}
	return settings, true
}

// firewalld starts firewalld with a bus of its own, and waits until it has written its rules.
func firewalld() bool {
	for _, name := range []string{"dbus-daemon", "firewalld", "firewall-cmd"} {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	_ = os.MkdirAll("/run/dbus", 0o755)
	_ = exec.Command("/bin/sh", "-c", "[ -e /run/dbus/nodegate ] || dbus-daemon --system --fork && : >/run/dbus/nodegate; "+
		"kill $(cat /run/nodegate-firewalld 2>/dev/null) 2>/dev/null && sleep 0.3; "+
		"firewalld --nofork --nopid >/dev/null 2>&1 & echo $! >/run/nodegate-firewalld").Run()
	for range 15 {
		if exec.Command("firewall-cmd", "--state").Run() == nil {
			return true
		}
		time.Sleep(500 * time.Millisecond)
	}
	return false
}
