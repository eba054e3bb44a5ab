package boot

import (
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/service"
)

// parseUnit reads a unit in the dump of systemd's test mode: blocks of lines "Key: value" below "-> Unit NAME:", where a
// unit's other names are its "Alias", and the commands below "-> ExecStart:".
func parseUnit(dump, name string) service.Answer {
	a := service.Answer{Required: map[string]string{}, Settings: map[string]string{}}
	states, jobs := map[string]string{}, map[string]bool{}
	var triggers []string
	units, _, _ := strings.Cut(dump, "-> By jobs:")
	for block := range strings.SplitSeq(units, "\t-> Unit ") {
		id, body, _ := strings.Cut(block, ":\n")
		is := id == name || strings.Contains(body, "\t\tAlias: "+name+"\n") || strings.Contains(body, "\t\tName: "+name+"\n")
		below := ""
		for line := range strings.Lines(body) {
			line = strings.TrimSuffix(strings.TrimLeft(line, "\t"), "\n")
			key, value, _ := strings.Cut(line, ": ")
			first, _, _ := strings.Cut(value, " ")
			kind := strings.TrimPrefix(strings.TrimPrefix(key, "Condition"), "Assert")
			switch {
			case strings.HasPrefix(line, "-> "):
				below = strings.Trim(line, "-> :")
			case key == "Unit Load State":
				states[id] = value
			case key == "Action":
				jobs[strings.TrimSuffix(value, " -> start")] = true
			case !is:
			case key == "Command Line" && below == "ExecStart":
				a.Programs = append(a.Programs, strings.Trim(first, `"`))
			case key == "Requires" || key == "BindsTo" || key == "Requisite":
				a.Required[first] = ""
			case key == "TriggeredBy":
				triggers = append(triggers, first)
			case key == "EnvironmentFile":
				a.EnvironmentFiles = append(a.EnvironmentFiles, value)
			case kind != key:
				a.Conditions = append(a.Conditions, service.NewCondition(key, strings.TrimSuffix(value, " untested")))
			case key == "Restart":
				a.Settings[key] = value
			}
		}
		if is {
			a.State = states[id]
			name = id
		}
	}
	for required := range a.Required {
		a.Required[required] = states[required]
	}
	a.Starts = jobs[name] || slices.ContainsFunc(triggers, func(t string) bool { return jobs[t] })
	return a
}

// Complaints returns the messages of systemd about a unit or a line of its files, by the path as which it read each. Of a setting that it
// quotes, the value is left out.
func Complaints(said, unit string, files map[string]string) (all []string) {
	quoted := regexp.MustCompile(`(ignoring: .*?=).*`)
	for line := range strings.Lines(said) {
		at, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		name, number, _ := strings.Cut(at, ":")
		switch path, is := files[name]; {
		case is:
			at = path + ":" + number
		case at != unit || strings.HasPrefix(text, "Cannot add dependency job") || strings.HasPrefix(text, "Found ") ||
			strings.HasPrefix(text, "Job "):
			continue
		}
		all = append(all, at+": "+quoted.ReplaceAllString(text, "$1"))
	}
	return all
}

// parseCycles returns the cycles that systemd has printed. Up to systemd 257 it prints one unit on each line: "U: Found ordering cycle on
// A/start", "U: Found dependency on B/start"; later versions print all units on the first line.
func parseCycles(printed string) (all []Cycle) {
	unit := regexp.MustCompile(`[\w@:.\\-]+\.(?:service|target|mount|automount|swap|socket|timer|path|slice|device|scope)\b`)
	for line := range strings.Lines(printed) {
		_, found, starts := strings.Cut(line, "ound ordering cycle")
		if starts {
			all = append(all, nil)
		} else if _, found, _ = strings.Cut(line, "Found dependency on"); found == "" || all == nil {
			continue
		}
		for _, name := range unit.FindAllString(found, -1) {
			if last := &all[len(all)-1]; !slices.Contains(*last, name) {
				*last = append(*last, name)
			}
		}
	}
	all = slices.DeleteFunc(all, func(c Cycle) bool { return len(c) == 0 })
	for i, c := range all { // systemd begins with any of the units
		first := slices.Index(c, slices.Min(c))
		all[i] = append(slices.Clone(c[first:]), c[:first]...)
	}
	return all
}
