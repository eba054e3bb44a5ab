package cage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
	"nodegate/internal/host/service"
)

// standIn is systemctl, a link to it, or service in the cage. A unit of Type=oneshot only runs a command: it runs here. firewalld
// writes its rules when it starts: it gets a bus of its own. All other units are written down.
func standIn(name string, args []string) (rc int) {
	var words []string
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") && (i == 0 || !slices.Contains(strings.Fields("-p -t -n -o -s -H -M --property --type"), args[i-1])) {
			words = append(words, arg)
		}
	}
	switch {
	case name == "service" && len(words) > 1:
		words[0], words[1] = words[1], words[0]
	case name != "service" && name != "systemctl": // reboot
		words = []string{name}
	}
	verb, units := append(words, "")[0], words[min(1, len(words)):]
	for i, unit := range units {
		if filepath.Ext(unit) == "" {
			units[i] += ".service"
		}
	}
	action, list := verb, strings.Join(units, " ")
	switch {
	case below(verb, "start stop restart reload"):
	case below(verb, "try-restart condrestart force-reload reload-or-restart try-reload-or-restart"):
		action = "restart"
	case below(verb, "enable reenable disable mask unmask preset daemon-reload daemon-reexec link set-default"):
		note(verb, list, Later)
		action = map[string]string{"enable": "start", "reenable": "start", "disable": "stop", "mask": "stop"}[verb]
		if !slices.Contains(args, "--now") {
			return 0
		}
	case verb == "", strings.HasPrefix(verb, "list-"), strings.HasPrefix(verb, "is-"), below(verb, "status show cat get-default"):
		return answer(verb, strings.Join(args, " "), units)
	default:
		note(verb, list, NotRun)
		return 0
	}
	for _, unit := range units {
		rc = max(rc, act(action, unit))
	}
	return rc
}

func note(verb, unit, how string) {
	if f, err := os.OpenFile(private+"/units", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644); err == nil {
		defer f.Close()
		_ = json.NewEncoder(f).Encode(Unit{verb, unit, how})
	}
}

// answer prints the state that systemd, asked outside, gave each unit.
func answer(verb, args string, units []string) (rc int) {
	known := map[string]string{}
	text, _ := file.Read(private+"/known", 8<<20)
	_ = json.Unmarshal(text, &known)
	for _, unit := range units {
		state := cmp.Or(known[unit], "inactive")
		wanted, _ := filepath.Glob("/etc/systemd/system/*/" + unit)
		switch {
		case verb == "is-enabled" && len(wanted) > 0:
			state = "enabled"
		case verb == "is-enabled":
			state, rc = "disabled", 1
		case verb == "show" && !strings.Contains(args, "--value"):
			state = "ActiveState=" + state
		case verb != "show" && state != "active":
			rc = 3
		}
		if !strings.Contains(args, "-q") {
			fmt.Println(state)
		}
	}
	return rc
}

// act does one action to one unit and returns systemctl's exit code.
func act(action, unit string) int {
	settings := load(unit)
	switch {
	case settings == nil:
		note(action, unit, Absent)
		fmt.Fprintf(os.Stderr, "Unit %s not found.\n", unit)
		return 5
	case unit == "firewalld.service" && action != "stop" && firewalld():
		note(action, unit, Ran)
		return 0
	case !slices.Contains(settings["Type"], "oneshot"):
		note(action, unit, NotRun)
		return 0
	}
	note(action, unit, Ran)
	variables := "" // of a unit, in the shell's words
	for _, list := range settings["Environment"] {
		variables += "export " + list + "; "
	}
	for _, name := range settings["EnvironmentFile"] {
		variables += "set -a; . " + strings.TrimPrefix(name, "-") + "; set +a; "
	}
	for _, step := range strings.Fields(map[string]string{"start": "ExecStartPre ExecStart", "stop": "ExecStop", "reload": "ExecReload",
		"restart": "ExecStop ExecStartPre ExecStart"}[action]) {
		for _, line := range settings[step] {
			cmd := exec.Command("/bin/sh", "-c", variables+strings.TrimLeft(line, "-@+!:"))
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Run(); err != nil && !strings.HasPrefix(line, "-") {
				fmt.Fprintf(os.Stderr, "Job for %s failed: %v\n", unit, err)
				return 1
			}
		}
	}
	return 0
}

// load returns a unit's settings, with its drop-ins, or nil.
func load(unit string) map[string][]string {
	u, err := service.Read(unitFiles{}, unit)
	if err != nil || u.Path == "" || u.Masked {
		return nil
	}
	settings, specifiers := map[string][]string{}, config.Specifiers(unit)
	for _, e := range u.Entries {
		value := specifiers.Replace(strings.ReplaceAll(e.Value, "%I", "%i"))
		if settings[e.Key] = append(settings[e.Key], value); value == "" || e.Key == "Type" {
			settings[e.Key] = []string{value}[:min(len(value), 1)]
		}
	}
	return settings
}

type unitFiles struct{}

func (unitFiles) ReadFile(name string) ([]byte, error)  { return file.Read(name, 1<<20) }
func (unitFiles) ReadDir(name string) ([]string, error) { return file.ListDir(name) }
func (unitFiles) ReadLink(name string) (string, error)  { return os.Readlink(name) }

// firewalld starts firewalld with a bus of its own, and waits until it has written its rules.
func firewalld() bool {
	return exec.Command("/bin/sh", "-c", `command -v dbus-daemon && command -v firewalld && mkdir -p /run/dbus && cd `+private+` || exit 1
[ -e dbus ] || dbus-daemon --system --fork && : >dbus; kill $(cat firewalld) && sleep 0.3
firewalld --nofork --nopid & echo $! >firewalld
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do firewall-cmd --state && exit; sleep 0.5; done; exit 1`).Run() == nil
}
