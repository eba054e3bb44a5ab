package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"nodegate/internal/host/boot"
	"nodegate/internal/host/config"
	"nodegate/internal/host/program"
	"nodegate/internal/host/service"
)

func (m *machineUnits) Loaded(ctx context.Context, unit string) (Loaded, error) {
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return Loaded{}, nil
	}
	var properties map[string]any
	var required []dbus.UnitStatus
	var began string
	err := m.ask(ctx, func(conn *dbus.Conn) (err error) {
		if properties, err = conn.GetAllPropertiesContext(ctx, unit); err != nil {
			return err
		}
		var all []string
		for _, key := range []string{"Requires", "BindsTo", "Requisite"} {
			names, _ := properties[key].([]string)
			all = append(all, names...)
		}
		began, _ = conn.GetManagerProperty("UnitsLoadTimestampMonotonic")
		required, err = conn.ListUnitsByNamesContext(ctx, all)
		return err
	})
	if err != nil {
		return Loaded{}, fmt.Errorf("querying systemd about %s and the units that it requires: %w", unit, err)
	}
	var l Loaded
	l.State, _ = properties["LoadState"].(string)
	l.Changed, _ = properties["NeedDaemonReload"].(bool)
	l.DropIns, _ = properties["DropInPaths"].([]string)
	if why, _ := properties["LoadError"].([]any); len(why) == 2 { // an error's name and its text
		said, _ := why[1].(string)
		l.Error = config.PlainMessage(said, unit)
	}
	l.Unit = answerOf(properties)
	for _, s := range required {
		l.Unit.Required[s.Name] = s.LoadState
	}
	files := map[string]string{}
	for _, path := range append(slices.Clone(l.DropIns), l.Unit.Path) {
		files[path] = path
	}
	l.Unit.Complaints = boot.Complaints(saidSince(ctx, began), unit, files)
	if l.Error != "" && l.Unit.Complaints == nil {
		l.Unit.Complaints = []string{"systemctl show " + unit + ": " + l.Error}
	}
	return l, nil
}

// Loaded is what systemd made of a unit's files.
type Loaded struct {
	State   string   `json:"state,omitempty"`   // its LoadState: loaded, not-found, bad-setting, error, masked
	Error   string   `json:"error,omitempty"`   // why it could not be loaded
	Changed bool     `json:"changed,omitempty"` // its files have changed since: NeedDaemonReload
	DropIns []string `json:"dropIns,omitempty"`

	Unit service.Answer `json:"unit,omitzero"`
}

// Lacks reports whether systemd has not yet loaded a drop-in of the unit, or the current version of
// the unit's other files.
func (l Loaded) Lacks(dropIn string) bool {
	// Changed misses a new drop-in directory.
	return l.State == "loaded" && (l.Changed || !slices.Contains(l.DropIns, dropIn))
}

// answerOf reads the properties of a unit as D-Bus has them.
func answerOf(properties map[string]any) service.Answer {
	text := func(key string) string { s, _ := properties[key].(string); return s }
	structs := func(key string) [][]any { s, _ := properties[key].([][]any); return s }
	a := service.Answer{State: text("LoadState"), Path: text("FragmentPath"), Running: true, Required: map[string]string{},
		Settings: map[string]string{"Restart": text("Restart")}}
	since, _ := properties["InactiveExitTimestamp"].(uint64)
	a.Started = since > 0
	a.Starts = text("ActiveState") == "activating" ||
		slices.Contains([]string{"enabled", "enabled-runtime", "generated", "alias", "linked"}, text("UnitFileState"))
	for _, key := range []string{"WantedBy", "RequiredBy", "UpheldBy", "TriggeredBy"} {
		by, _ := properties[key].([]string)
		a.Starts = a.Starts || len(by) > 0
	}
	for _, f := range structs("EnvironmentFiles") { // (path, whether it may be missing)
		if name, _ := f[0].(string); len(f) == 2 && f[1] == false {
			a.EnvironmentFiles = append(a.EnvironmentFiles, name)
		}
	}
	for _, c := range structs("ExecStart") {
		if name, is := c[0].(string); is {
			a.Programs = append(a.Programs, name)
		}
	}
	for _, key := range []string{"Conditions", "Asserts"} {
		for _, c := range structs(key) { // (type, trigger, negate, parameter, 1, 0 if it was not tested, or negative if it is not met)
			if len(c) != 5 {
				continue
			}
			name, _ := c[0].(string)
			value, _ := c[3].(string)
			met, _ := c[4].(int32)
			for i, mark := range []string{"!", "|"} {
				if c[2-i] == true {
					value = mark + value
				}
			}
			if ok, _ := properties[strings.TrimSuffix(key, "s")+"Result"].(bool); met < 0 && !ok {
				a.Conditions = append(a.Conditions, service.NewCondition(name, value))
			}
		}
	}
	return a
}

// saidSince returns the messages of systemd itself since a time of this boot, in microseconds. A journal that cannot be read has none.
func saidSince(ctx context.Context, began string) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	since, err := strconv.ParseUint(began[strings.LastIndexByte(began, ' ')+1:], 10, 64)
	lines, _ := program.Run(ctx, "journalctl", "--boot", "--no-pager", "--quiet", "--identifier=systemd", "--priority=warning",
		"--output=json", "--output-fields=MESSAGE", "--lines=1000")
	var said bytes.Buffer
	for line := range bytes.Lines(lines) {
		var l struct {
			Message any    `json:"MESSAGE"`
			At      string `json:"__MONOTONIC_TIMESTAMP"`
		}
		if json.Unmarshal(line, &l) != nil {
			continue
		}
		if at, bad := strconv.ParseUint(l.At, 10, 64); cmp.Or(err, bad) == nil && at >= since {
			fmt.Fprintln(&said, l.Message)
		}
	}
	return said.String()
}
