package service

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/plain"
)

// Fault is a reason why systemd does not start a service, or starts it without a part of its settings.
type Fault struct {
	At, Text string // the place and its content
	What     string
	Remedy   string
	Load     bool // systemd finds it when it loads the unit
	Enable   bool // it concerns the next boot only
	Doubt    bool // another program may mend it before the start
}

// Judge returns the faults of a unit, as far as its files show them. If the running systemd has already answered whether the unit starts at
// boot, enabled is true: the search for what starts it reads every unit of the machine.
func (u Unit) Judge(files Files, enabled bool) ([]Fault, error) {
	if u.Masked && strings.HasPrefix(u.Path, "/run/") {
		lasting := slices.DeleteFunc(Dirs(), func(dir string) bool { return strings.HasPrefix(dir, "/run/") })
		u, err := readFrom(files, u.Name, lasting)
		if err != nil {
			return nil, err
		}
		faults, err := u.Judge(files, enabled)
		return append(faults, Fault{At: "/run/systemd", Text: u.Name + " is masked", Load: true, Doubt: true,
			What:   u.Name + " is masked until the next boot",
			Remedy: "to start it before that, run `systemctl unmask --runtime " + u.Name + "`"}), err
	}
	if u.Masked {
		return []Fault{{At: u.Path, Text: "masked", Load: true, What: u.Name + " is masked: systemd never starts it",
			Remedy: "run `systemctl unmask " + u.Name + "`, and restore its file if it is empty"}}, nil
	}
	j := &judge{Unit: u, files: files, mends: u.Mends(files)}
	j.checkStarts()
	j.checkEnvironment()
	j.checkEnvironmentFiles()
	j.checkDirectory()
	j.checkUser()
	j.checkProgram()
	j.checkRequired()
	j.checkConditions()
	j.checkRetries()
	if !enabled {
		j.checkEnabled()
	}
	return j.faults, j.err
}

type judge struct {
	Unit
	files  Files
	mends  Mend
	faults []Fault
	err    error
}

func (j *judge) add(e config.Entry, what, remedy string) *Fault {
	j.faults = append(j.faults, Fault{At: e.At(), Text: e.Key + "=" + e.Value, What: what, Remedy: remedy})
	return &j.faults[len(j.faults)-1]
}

// editLine returns the command that edits the line of an assignment.
func editLine(e config.Entry, edit string) string {
	return fmt.Sprintf("sed -i '%d%s' %s", e.Line, edit, plain.Quote(e.File))
}

// addMissing adds a fault over a file that does not exist, unless another program creates it before the start.
func (j *judge) addMissing(e config.Entry, name, what, remedy string) {
	switch certain, later := j.mayAppear(name); {
	case later && certain:
	default:
		j.add(e, what, remedy).Doubt = later
	}
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

// checkStarts judges as service_verify in systemd's src/core/service.c does.
func (j *judge) checkStarts() {
	starts, kind := j.list("Service", "ExecStart"), j.last("Service", "Type").Value
	oneshot := kind == "oneshot"
	load := func(e config.Entry, what, remedy string) { j.add(e, what, remedy).Load = true }
	own := config.Entry{File: j.Path, Line: 1, Key: "ExecStart"}
	switch restart := j.last("Service", "Restart"); {
	case len(starts) == 0 && j.Path == "":
	case len(starts) == 0 && !oneshot:
		load(own, j.Name+" has no ExecStart=: systemd refuses to load it", "write ExecStart= in "+j.Path+" or a drop-in")
	case len(starts) > 1 && !oneshot:
		load(starts[1], fmt.Sprintf("%s has %d ExecStart= lines: systemd refuses to load it", j.Name, len(starts)),
			"run `"+editLine(starts[len(starts)-1], "i ExecStart=")+"`, which resets the earlier lines, or remove those")
	case oneshot && (restart.Value == "always" || restart.Value == "on-success"):
		load(restart, j.Name+" has Type=oneshot and Restart="+restart.Value+": systemd refuses to load it",
			"run kubelet in a service of Type=simple or Type=notify; nodegate's drop-in needs Restart=always")
	}
	for _, key := range []string{"ExecStartPre", "ExecStart", "ExecCondition"} {
		for _, c := range j.commands(key) {
			if strings.Contains(c.words[0], "/") && !path.IsAbs(c.words[0]) {
				load(c.entry, c.words[0]+" is not an absolute path: systemd refuses to load "+j.Name, "write the absolute path of the program")
			}
		}
		for _, e := range j.list("Service", key) {
			if words, whole := config.Words(e.Value); !whole && len(words) > 1 {
				load(e, "a quote of "+key+"= does not end: systemd refuses to load "+j.Name,
					"end the quote on the same line, or end the line with a backslash")
			}
		}
	}
}

// checkEnvironment finds assignments that systemd ignores with a warning. Only one that ExecStart uses, or a lost flag, is a fault.
func (j *judge) checkEnvironment() {
	used := ""
	for _, e := range j.list("Service", "ExecStart") {
		used += e.Value + " "
	}
	valid := regexp.MustCompile(`^[A-Za-z_]\w*=`)
	for _, e := range j.list("Service", "Environment") {
		words, whole := config.Words(e.Value)
		uses := false
		for i, w := range words {
			name, _, _ := strings.Cut(w, "=")
			uses = uses || regexp.MustCompile(`\$\{?`+regexp.QuoteMeta(name)+`\b`).MatchString(used)
			lost := !valid.MatchString(w) || !whole && i == len(words)-1
			if lost && (uses || strings.HasPrefix(w, "-")) {
				j.add(e, "systemd ignores the assignment "+strconv.Quote(w)+", so "+j.Name+" starts without it",
					"quote the whole assignment on one line, Environment=\"NAME=VALUE VALUE\", or end each line but the last with a backslash")
			}
		}
	}
	for _, e := range j.Entries {
		if e.Section == "Service" && strings.HasPrefix(e.Key, "-") {
			j.add(e, "systemd ignores the line "+strconv.Quote(e.Key+"="+e.Value)+", so "+j.Name+" starts without this flag",
				"end the previous line with a backslash")
		}
	}
}

// checkEnvironmentFiles: systemd reads these files before every command of the unit, so that no ExecStartPre=, not even the gate,
// runs without them.
func (j *judge) checkEnvironmentFiles() {
	for _, e := range j.list("Service", "EnvironmentFile") {
		name := config.Specifiers(j.Name).Replace(e.Value)
		if strings.HasPrefix(name, "-") || !path.IsAbs(name) {
			continue
		}
		names, known, err := config.Matching(j.files, name)
		if err != nil {
			j.err = errors.Join(j.err, err)
		}
		if !known || err != nil || len(names) > 0 && slices.ContainsFunc(names, func(n string) bool { _, is := j.exists(n); return is }) {
			continue
		}
		j.addMissing(e, name, name+" is missing: systemd runs no command of "+j.Name+", not even the gate",
			"create the file, or run `"+editLine(e, "s/EnvironmentFile=/&-/")+"` if it may be missing")
	}
}

func (j *judge) checkDirectory() {
	e := j.last("Service", "WorkingDirectory")
	name := config.Specifiers(j.Name).Replace(e.Value)
	if !path.IsAbs(name) || j.last("Service", "RootDirectory").Value+j.last("Service", "RootImage").Value != "" {
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
		j.add(e, name+" is not a directory: no command of "+j.Name+" starts, not even the gate", "correct WorkingDirectory=")
	} else if !exists {
		j.addMissing(e, name, name+" is missing: no command of "+j.Name+" starts, not even the gate",
			"run `mkdir -p "+plain.Quote(name)+"`, or correct WorkingDirectory=")
	}
}

func (j *judge) checkUser() {
	for _, where := range []struct{ key, file, letter string }{{"User", "/etc/passwd", "u"}, {"Group", "/etc/group", "ug"}} {
		e := j.last("Service", where.key)
		if e.Value == "" || e.Value == "root" || strings.Contains(e.Value, "%") || regexp.MustCompile(`^\d+$`).MatchString(e.Value) {
			continue
		}
		text, found, err := config.ReadIfAny(j.files, where.file)
		sources, _, _ := config.ReadIfAny(j.files, "/etc/nsswitch.conf")
		elsewhere := regexp.MustCompile(`(?m)^(passwd|group):.*\b(sss|ldap|winbind|nis|db|extrausers|altfiles|libc|google|cache)`).Match(sources)
		dynamic, _ := config.ParseBool(j.last("Service", "DynamicUser").Value)
		if err != nil || !found || elsewhere || dynamic || regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(e.Value)+`:`).Match(text) {
			j.err = errors.Join(j.err, err)
			continue
		}
		makes, err := config.Collect(j.files, config.Dirs("sysusers.d")[:4], ".conf")
		j.err = errors.Join(j.err, err)
		line := regexp.MustCompile(`(?m)^\s*[` + where.letter + `]!?\s+"?` + regexp.QuoteMeta(e.Value) + `"?\s`)
		if !slices.ContainsFunc(makes, func(f config.File) bool { return line.Match(append(f.Text, '\n')) }) {
			j.add(e, where.file+" has no "+e.Value+": "+j.Name+" does not start",
				"run `"+strings.ToLower(where.key)+"add --system "+plain.Quote(e.Value)+"`, or correct "+where.key+"=")
		}
	}
}

// checkProgram judges whether the kernel can execute the program of ExecStart.
func (j *judge) checkProgram() {
	for _, key := range []string{
		"RootDirectory", "RootImage", "BindPaths", "BindReadOnlyPaths", "ExtensionImages", "MountImages", "ExecSearchPath",
	} {
		if len(j.list("Service", key)) > 0 {
			return // the unit has its own file tree
		}
	}
	for _, c := range j.commands("ExecStart") {
		name := c.words[0]
		if !path.IsAbs(name) || strings.Contains(name, "%") {
			continue
		}
		const remedy = "install the program for this machine, or correct ExecStart="
		if _, exists := j.exists(name); !exists {
			if j.mends.Writes(name) == "" {
				j.addMissing(c.entry, name, name+" is missing", "install it, or correct ExecStart=")
			}
			continue
		}
		head, err := j.files.Head(name)
		if err != nil || j.mends.Writes(name) != "" {
			continue
		}
		line, _, _ := strings.Cut(string(head.Start), "\n")
		interpreter, isScript := strings.CutPrefix(line, "#!")
		words := strings.Fields(interpreter)
		machine, isELF := machineOf(head.Start)
		switch {
		case head.Dir:
			j.add(c.entry, name+" is a directory", "correct ExecStart=")
		case !head.MayExecute():
			j.add(c.entry, name+" is not executable", "run `chmod 755 "+plain.Quote(name)+"`")
		case len(head.Start) == 0:
			j.add(c.entry, name+" is empty", remedy)
		case isScript && len(words) > 0 && path.IsAbs(words[0]):
			if _, exists := j.exists(words[0]); !exists {
				j.add(c.entry, words[0]+", which runs the script "+name+", is missing",
					"install the interpreter, or correct the first line of the script")
			}
		case isELF:
			for _, own := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd", "/bin/sh", "/usr/bin/sh"} {
				init, err := j.files.Head(own)
				if other, is := machineOf(init.Start); err == nil && is {
					if other != machine {
						j.add(c.entry, name+" is for "+machine+", but "+own+" for "+other, remedy)
					}
					break
				}
			}
		}
	}
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
