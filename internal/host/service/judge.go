package service

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/plain"
)

// Answer is the answer of systemd about a unit.
type Answer struct {
	State            string            `json:"state,omitempty"`      // its LoadState
	Path             string            `json:"path,omitempty"`       // of its own file, or of the link that masks it
	Complaints       []string          `json:"complaints,omitempty"` // about the unit, or about a line of its files
	Starts           bool              `json:"starts"`               // something starts it at boot
	Required         map[string]string `json:"required,omitempty"`   // a unit that it requires -> its LoadState
	EnvironmentFiles []string          `json:"environmentFiles,omitempty"`
	Programs         []string          `json:"programs,omitempty"`   // of ExecStart
	Conditions       []Condition       `json:"conditions,omitempty"` // if Running, those that are not met; else all, not yet tested
	Settings         map[string]string `json:"settings,omitempty"`   // Restart
	Running          bool              `json:"running,omitempty"`    // the answer is the running systemd's, which has tested conditions
	Started          bool              `json:"started,omitempty"`    // since the boot
}

// Condition is ConditionPathExists=, AssertPathExists= or another one.
type Condition struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// NewCondition returns a condition, without a value that is a free text, as of ConditionEnvironment=.
func NewCondition(key, value string) Condition {
	if !config.IsKnown("Condition" + strings.TrimPrefix(strings.TrimPrefix(key, "Condition"), "Assert")) {
		value = config.LeftOut
	}
	return Condition{key, value}
}

// Fault is a reason why systemd does not start a service, or starts it without a part of its settings.
type Fault struct {
	At, Text string // the place and its content
	What     string
	Remedy   string
	Doubt    bool // another program may mend it before the start
	Later    bool // a program must mend it at the first boot of the image
}

// Judge returns the faults of a unit: the complaints of systemd, and faults that it would find only at a start: that a program or a file
// does not exist.
func (u Unit) Judge(files Files, a Answer) ([]Fault, error) {
	if a.Path == "" {
		a.Path = u.Path
	}
	j := &judge{Unit: u, Answer: a, files: files}
	if a.State == "masked" {
		j.add("masked", u.Name+" is masked: systemd never starts it", "run `systemctl unmask "+u.Name+"`, and restore its file if it is empty")
		return j.faults, nil
	}
	j.checkLoaded()
	j.checkEnvironmentFiles()
	j.checkDirectory()
	j.checkProgram()
	j.checkConditions()
	j.checkRetries()
	if !a.Starts {
		f := j.add("no unit of the boot starts it", u.Name+" is enabled nowhere: systemd does not start it at boot",
			"run `systemctl enable "+u.Name+"`, unless a program starts it, as EKS' nodeadm, GKE's scripts and minikube do")
		f.Doubt, f.Later = true, j.awaits // a program may start it, as nodeadm does
	}
	return j.faults, j.err
}

type judge struct {
	Unit
	Answer
	files  Files
	faults []Fault
	awaits bool // the image lacks a file of variables
	err    error
}

// add adds a fault, with the line of an assignment KEY=VALUE if the unit's files have it.
func (j *judge) add(text, what, remedy string) *Fault {
	f := Fault{At: j.Answer.Path, Text: text, What: what, Remedy: remedy}
	if e := j.find(text); e.Line > 0 {
		f.At, f.Text = e.At(), e.Key+"="+e.Value
	}
	j.faults = append(j.faults, f)
	return &j.faults[len(j.faults)-1]
}

// find returns the last assignment of a key whose value names the value of "KEY=VALUE".
func (j *judge) find(assignment string) (found config.Entry) {
	key, value, _ := strings.Cut(assignment, "=")
	for _, e := range j.Entries {
		if e.Key == key && strings.Contains(config.Specifiers(j.Name).Replace(e.Value), value) {
			found = e
		}
	}
	return found
}

// edit returns the command that edits the line of an assignment.
func edit(e config.Entry, how string) string {
	return fmt.Sprintf("sed -i '%d%s' %s", e.Line, how, plain.Quote(e.File))
}

// addMissing adds a fault over a file that does not exist. Outside of the system's own directories some program may create it before the
// first start.
func (j *judge) addMissing(text, name, what, remedy string) *Fault {
	f := j.add(text, what, remedy)
	f.Doubt = !ofSystem(name) && !j.Started
	return f
}

func ofSystem(name string) bool {
	return regexp.MustCompile(`^/(usr/(bin|sbin|lib\w*|share)|bin|sbin|lib\w*)/`).MatchString(name)
}

// exists reports whether a name leads to a file or directory. After an error, which it keeps, it returns true.
func (j *judge) exists(name string) (dir, exists bool) {
	head, err := j.files.Head(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, false
	case err != nil:
		j.err = errors.Join(j.err, err)
		return true, true
	}
	return head.Dir, true
}

// checkLoaded reports the complaints of systemd about the unit's files, and the units that it requires in vain.
func (j *judge) checkLoaded() {
	for _, c := range j.Complaints {
		at, text, _ := strings.Cut(c, ": ")
		remedy := "correct it, and see `systemd-analyze verify " + j.Name + "`"
		if starts := j.list("Service", "ExecStart"); strings.Contains(text, "more than one ExecStart=") && len(starts) > 1 {
			last := starts[len(starts)-1]
			at, remedy = last.At(), "run `"+edit(last, "i ExecStart=")+"`, which resets the earlier lines, or remove those"
		}
		switch ignored := regexp.MustCompile(`(ignoring: |Unknown .*?)["']*-`).MatchString(text); {
		case j.State != "loaded":
		case strings.Contains(text, config.Mark): // in a copy of a file that not every user may read: the word is hidden, not unknown
			continue
		case ignored || strings.HasPrefix(text, "Invalid syntax") || strings.HasPrefix(text, "Unbalanced"):
			remedy = "quote the whole assignment on one line, Environment=\"NAME=VALUE VALUE\", or end each line but the last with a backslash"
		case !strings.HasPrefix(text, "Missing '='"): // another version of systemd may know it
			continue
		}
		j.faults = append(j.faults, Fault{At: at, Text: text, What: "systemd says: " + text, Remedy: remedy})
	}
	if j.State != "loaded" && j.Complaints == nil {
		j.add("LoadState="+j.State, "systemd cannot load "+j.Name+": "+j.State,
			"run `systemd-analyze verify "+j.Name+"`, and correct the line that it names")
	}
	for _, name := range slices.Sorted(maps.Keys(j.Required)) {
		kinds := []string{".service", ".socket", ".target", ".timer", ".path"} // systemd makes slices, devices and mounts itself
		switch state := j.Required[name]; {
		case !slices.Contains(kinds, path.Ext(name)):
		case state == "masked":
			j.add("Requires="+name, j.Name+" requires "+name+", which is masked",
				"run `systemctl unmask "+name+"`, or write Wants= instead of Requires=")
		case state == "not-found":
			sysv, _ := j.files.Exists("/etc/init.d/" + strings.TrimSuffix(name, ".service"))
			if !sysv {
				j.add("Requires="+name, j.Name+" requires "+name+", which does not exist", "install it, or correct Requires=")
			}
		}
	}
}

// checkEnvironmentFiles: systemd reads these files before every command of the unit, so that no ExecStartPre=, not even the gate,
// runs without them.
func (j *judge) checkEnvironmentFiles() {
	for _, name := range j.EnvironmentFiles {
		if strings.HasPrefix(name, "-") || !path.IsAbs(name) {
			continue
		}
		names, known, err := config.Matching(j.files, name)
		j.err = errors.Join(j.err, err)
		if !known || err != nil || slices.ContainsFunc(names, func(n string) bool { _, is := j.exists(n); return is }) {
			continue
		}
		left := !j.Running && !ofSystem(name)
		if left && !j.Starts {
			j.awaits = true
			continue
		}
		f := j.addMissing("EnvironmentFile="+name, name, name+" is missing: systemd runs no command of "+j.Name+", not even the gate",
			"create the file, or run `"+edit(j.find("EnvironmentFile="+name), "s/EnvironmentFile=/&-/")+"` if it may be missing")
		f.Later = left && j.isPrepared(j.Unit)
	}
}

// isPrepared reports whether a one-shot service runs before a unit, or before a target that the unit waits for. Such a service may write
// the unit's files at each boot, as afterburn does below /run.
func (j *judge) isPrepared(u Unit) bool {
	for _, e := range u.list("Unit", "After") {
		for _, name := range strings.Fields(e.Value) {
			if name == "nodegate-apply.service" { // runs before every gated unit, and writes no such file
				continue
			}
			before, err := Read(j.files, name)
			j.err = errors.Join(j.err, err)
			kind, _ := config.Last(before.Entries, "Service", "Type")
			if kind.Value == "oneshot" || path.Ext(u.Name) != ".target" && path.Ext(name) == ".target" && j.isPrepared(before) {
				return true
			}
		}
	}
	return false
}

func (j *judge) checkDirectory() {
	e := j.last("Service", "WorkingDirectory")
	name := config.Specifiers(j.Name).Replace(e.Value)
	if !path.IsAbs(name) || j.ownTree() {
		return
	}
	for key, dir := range map[string]string{"StateDirectory": "/var/lib/", "RuntimeDirectory": "/run/", "CacheDirectory": "/var/cache/",
		"LogsDirectory": "/var/log/", "ConfigurationDirectory": "/etc/"} {
		for _, d := range j.list("Service", key) {
			if slices.Contains(strings.Fields(d.Value), strings.TrimPrefix(path.Clean(name), dir)) {
				return
			}
		}
	}
	if dir, exists := j.exists(name); exists && !dir {
		j.add("WorkingDirectory="+name, name+" is not a directory: no command of "+j.Name+" starts, not even the gate",
			"correct WorkingDirectory=")
	} else if !exists {
		j.addMissing("WorkingDirectory="+name, name, name+" is missing: no command of "+j.Name+" starts, not even the gate",
			"run `mkdir -p "+plain.Quote(name)+"`, or correct WorkingDirectory=")
	}
}

// ownTree reports whether the unit's programs come from another file tree.
func (j *judge) ownTree() bool {
	for _, key := range []string{"RootImage", "BindPaths", "BindReadOnlyPaths", "ExtensionImages", "MountImages", "ExecSearchPath"} {
		if len(j.list("Service", key)) > 0 {
			return true
		}
	}
	return !slices.Contains([]string{"", "/"}, j.last("Service", "RootDirectory").Value)
}

// checkProgram judges whether the kernel can execute the programs of ExecStart.
func (j *judge) checkProgram() {
	if j.ownTree() {
		return
	}
	for _, name := range j.Programs {
		if !path.IsAbs(name) {
			continue
		}
		text := "ExecStart=" + name
		const remedy = "install the program for this machine, or correct ExecStart="
		if _, exists := j.exists(name); !exists {
			j.addMissing(text, name, name+" is missing", "install it, or correct ExecStart=")
			continue
		}
		head, err := j.files.Head(name)
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(head.Start), "\n")
		interpreter, isScript := strings.CutPrefix(line, "#!")
		words := strings.Fields(interpreter)
		machine, isELF := machineOf(head.Start)
		switch {
		case head.Dir:
			j.add(text, name+" is a directory", "correct ExecStart=")
		case !head.MayExecute():
			j.add(text, name+" is not executable", "run `chmod 755 "+plain.Quote(name)+"`")
		case len(head.Start) == 0:
			j.add(text, name+" is empty", remedy)
		case isScript && len(words) > 0 && path.IsAbs(words[0]):
			if _, exists := j.exists(words[0]); !exists {
				j.add(text, words[0]+", which runs the script "+name+", is missing",
					"install the interpreter, or correct the first line of the script")
			}
		case isELF:
			if own, other := j.initMachine(); other != "" && other != machine {
				j.add(text, name+" is for "+machine+", but "+own+" for "+other, remedy)
			}
		}
	}
}

// initMachine returns a program of the system and the family of processors that it is for.
func (j *judge) initMachine() (name, machine string) {
	for _, own := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd", "/bin/sh", "/usr/bin/sh"} {
		init, err := j.files.Head(own)
		if machine, is := machineOf(init.Start); err == nil && is {
			return own, machine
		}
	}
	return "", ""
}

// machineOf returns the family of processors that an ELF program is for.
func machineOf(start []byte) (string, bool) {
	if len(start) < 20 || string(start[:4]) != "\x7fELF" {
		return "", false
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if start[5] == 2 {
		order = binary.BigEndian
	}
	number := order.Uint16(start[18:])
	name := map[uint16]string{ // e_machine
		3: "x86", 62: "x86", 40: "ARM", 183: "ARM", 243: "RISC-V", 22: "s390", 20: "PowerPC", 21: "PowerPC", 258: "LoongArch",
	}[number]
	return name, name != "" // 32-bit programs run on most 64-bit kernels of their family
}

// checkConditions finds conditions that fail at every boot. The running systemd has tested them; in a tree those on the system's own files
// are judged.
func (j *judge) checkConditions() {
	for _, c := range j.Conditions {
		text, trigger := strings.CutPrefix(c.Value, "|")
		name, negated := strings.CutPrefix(text, "!")
		kind := strings.TrimPrefix(strings.TrimPrefix(c.Key, "Condition"), "Assert")
		known := []string{"PathExists", "PathIsDirectory", "FileNotEmpty", "FileIsExecutable", "DirectoryNotEmpty"}
		unmet := func() {
			j.add(c.Key+"="+c.Value, fmt.Sprintf("%s=%s is not met, so systemd skips the start of %s", c.Key, c.Value, j.Name),
				"remove the condition, or make it true")
		}
		switch {
		case j.Running:
			unmet()
			continue
		case !slices.Contains(known, kind) || !path.IsAbs(name):
			continue
		}
		if _, exists := j.exists(name); exists == negated && !trigger && ofSystem(name) { // another file may come with the provisioning
			unmet()
		}
	}
}

// checkRetries: a held unit must be started again, for as long as it takes.
func (j *judge) checkRetries() {
	limit := j.last("Unit", "StartLimitIntervalSec")
	for _, e := range j.Entries { // the older names of the same option
		if e.Key == "StartLimitIntervalSec" && e.Section == "Unit" || e.Key == "StartLimitInterval" {
			limit = e
		}
	}
	restart := j.Settings["Restart"]
	const remedy = "remove the line, or rename its file so that it sorts before 10-nodegate.conf"
	switch {
	case !slices.ContainsFunc(j.list("Service", "ExecStartPre"), isGate):
	case limit.Value != "" && strings.Trim(limit.Value, "0smhd ") != "":
		j.faults = append(j.faults, Fault{At: limit.At(), Text: limit.Key + "=" + limit.Value,
			What: "a held " + j.Name + " is not started again after its start limit", Remedy: remedy})
	case slices.Contains([]string{"no", "on-success", "on-abort", "on-watchdog", "on-abnormal"}, restart):
		j.add("Restart="+restart, "a held "+j.Name+" is not started again", remedy)
	}
}
