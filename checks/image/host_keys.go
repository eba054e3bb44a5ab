package image

import (
	"context"
	"path"
	"slices"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/host/service"
	"nodegate/internal/plain"
)

// judgeHostKeys finds SSH host keys. Without them sshd starts only if something makes new ones at boot: a remedy that removes the keys
// must not end in an image without a login.
func judgeHostKeys(ctx context.Context, h finder, r *report) error {
	keys := leftover{kind: "SSH host keys", patterns: []string{"/etc/ssh/ssh_host_*_key"}}
	files, err := keys.find(h)
	if err != nil {
		return err
	}
	other := leftover{kind: keys.kind, patterns: []string{"/etc/ssh/*", "/etc/ssh/*/*"}, holds: []config.Trait{config.PrivateKey},
		except: []string{"/etc/ssh/moduli"}}
	more, err := other.find(h)
	if err != nil {
		return err
	}
	files = append(files, more...)
	if err := judgeDropbear(ctx, h, r); err != nil {
		return err
	}
	on, err := sshdOn(ctx, h)
	if err != nil || !on && files == nil {
		return err
	}
	maker, problem := "", ""
	if on {
		if maker, problem, err = hostKeyMaker(ctx, h); err != nil {
			return err
		}
	}
	add := addKeygen(h)
	switch {
	case files == nil && maker == "" && on:
		r.add(h, leftover{kind: "sshd will not start: no host keys and " + problem, minor: true, remedy: func(...string) string { return add }},
			[]found{{"/etc/ssh", "no host keys, and " + problem}})
	case files != nil:
		if maker == "" && on {
			r.remedies = append(r.remedies, add)
		}
		for i := range files {
			if files[i].text = keys.kind; maker != "" {
				files[i].text += "; " + maker + " makes new ones"
			}
		}
		r.add(h, keys, files)
	}
	return nil
}

// sshdOn reports whether OpenSSH's server starts at boot or by its socket.
func sshdOn(ctx context.Context, h finder) (bool, error) {
	if refused, err := h.Files.Exists("/etc/ssh/sshd_not_to_be_run"); err != nil || refused {
		return false, err
	}
	for _, unit := range []string{"ssh.service", "sshd.service", "ssh.socket", "sshd.socket"} {
		if on, _, err := h.UnitOn(ctx, unit); err != nil || on {
			return on, err
		}
	}
	return false, nil
}

// sshServices are the services that run sshd, by the names that distributions use.
func sshServices() []string {
	return []string{"ssh.service", "sshd.service", "ssh@.service", "sshd@.service"}
}

// addKeygen returns the command that makes each service of sshd create its host keys. sshd -t, which Debian's unit runs first, would fail
// without them.
func addKeygen(h finder) string {
	var units []string
	for _, unit := range sshServices() {
		for _, dir := range []string{"/usr/lib/systemd/system/", "/lib/systemd/system/"} {
			if exists, err := h.Files.Exists(dir + unit); err == nil && exists && !slices.Contains(units, unit) {
				units = append(units, unit)
			}
		}
	}
	if units == nil {
		units = []string{"sshd.service"}
	}
	dir := plain.Quote(path.Join(h.Root, "/etc/systemd/system")) + "/$u.d"
	return "for u in " + strings.Join(units, " ") + "; do mkdir -p " + dir +
		`; printf '[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\n' >` + dir + "/keygen.conf; done"
}

// hostKeyMaker returns the program or unit that makes SSH host keys at boot. If the image lacks one, it returns the reason.
func hostKeyMaker(ctx context.Context, h finder) (maker, problem string, err error) {
	if runs, err := cloudInitRuns(h); err != nil || runs {
		return "cloud-init", "", err
	}
	for _, unit := range []string{
		"google-guest-agent.service", "google-guest-agent-manager.service", "google-instance-setup.service", "walinuxagent.service",
		"waagent.service",
	} {
		if on, _, err := h.UnitOn(ctx, unit); err != nil || on {
			return unit, "", err
		}
	}
	m := &makers{h: h, problem: "nothing makes them"}
	for _, name := range sshServices() {
		m.addOwn(name)
	}
	for _, dir := range []string{"/etc", "/usr/lib", "/lib"} {
		for _, kind := range []string{"wants", "requires"} {
			links, err := h.glob(dir + "/systemd/system/*." + kind + "/*")
			if err != nil {
				return "", "", err
			}
			for _, link := range links {
				if m.mayMake(link) {
					m.add(path.Base(link), 0)
				}
			}
		}
	}
	return m.maker, m.problem, m.err
}

// makers searches units for one that makes SSH host keys.
type makers struct {
	h              finder
	seen           []string
	maker, problem string
	err            error
}

// addOwn judges a service of sshd itself: its first commands, and the units that it requires.
func (m *makers) addOwn(name string) {
	u, ok := m.read(name)
	if !ok {
		return
	}
	for _, e := range u.Entries {
		if e.Section == "Unit" && (e.Key == "Wants" || e.Key == "Requires" || e.Key == "BindsTo") {
			for _, wanted := range strings.Fields(e.Value) {
				m.add(wanted, 1)
			}
		}
	}
	for _, e := range u.CommandLines("ExecStartPre") {
		program := strings.TrimLeft(strings.Fields(e.Value)[0], "+!:@")
		if m.makes(e) {
			m.maker = name
			return
		}
		if path.Base(program) == "sshd" && !strings.HasPrefix(program, "-") {
			return // it fails without keys, and the later commands never run
		}
	}
}

// mayMake reports whether the file of a unit could make SSH host keys: to read all drop-ins of every unit would take most of the time of
// the check.
func (m *makers) mayMake(file string) bool {
	text, _, err := m.h.ReadIfAny(file)
	if err != nil {
		return true
	}
	entries, _ := config.ParseINI(file, text)
	return slices.ContainsFunc(entries, func(e config.Entry) bool {
		return e.Section == "Service" && strings.HasPrefix(e.Key, "ExecStart") && m.makes(e)
	})
}

// add judges a unit that is started at boot, and, for a target, the units that it wants.
func (m *makers) add(name string, depth int) {
	if m.maker != "" || m.err != nil || slices.Contains(m.seen, name) || slices.Contains(sshServices(), name) {
		return
	}
	m.seen = append(m.seen, name)
	isTarget := strings.HasSuffix(name, ".target")
	if !strings.HasSuffix(name, ".service") && (!isTarget || !config.NamesHostKeyProgram(name)) {
		return
	}
	u, ok := m.read(name)
	if !ok {
		return
	}
	for _, e := range u.Entries {
		if isTarget && depth < 2 && e.Section == "Unit" && (e.Key == "Wants" || e.Key == "Requires") {
			for _, wanted := range strings.Fields(e.Value) {
				m.add(wanted, depth+1)
			}
		}
	}
	if !slices.ContainsFunc(append(u.CommandLines("ExecStartPre"), u.CommandLines("ExecStart")...), m.makes) {
		return
	}
	if e, is := config.Last(u.Entries, "Unit", "ConditionFirstBoot"); is {
		if yes, _ := config.ParseBool(e.Value); yes && !m.firstBoot() {
			m.problem = name + ", which makes them, runs only at a first boot: an empty /etc/machine-id makes the boot an ordinary one"
			return
		}
	}
	m.maker = name
}

func (m *makers) read(name string) (service.Unit, bool) {
	u, err := service.Read(m.h.Files, name)
	if err != nil && m.err == nil {
		m.err = err
	}
	return u, err == nil && u.Path != "" && !u.Masked
}

// makes reports whether a command makes SSH host keys, itself or as a script.
func (m *makers) makes(e config.Entry) bool {
	if config.NamesHostKeyProgram(e.Value) {
		return true
	}
	words, _ := config.Words(e.Value)
	for _, word := range words {
		word = strings.TrimLeft(word, "-+!:@")
		if !path.IsAbs(word) || strings.HasPrefix(word, "/usr/bin/") || strings.HasPrefix(word, "/bin/") || strings.HasPrefix(word, "/dev/") {
			continue
		}
		head, err := m.h.Files.Head(word)
		if err != nil || head.Dir || !strings.HasPrefix(string(head.Start), "#!") {
			continue
		}
		if traits, err := m.h.traits(word); err == nil && slices.Contains(traits, config.MakesHostKeys) {
			return true
		}
	}
	return false
}

// firstBoot reports whether systemd treats the next boot as the first one (machine-id(5)).
func (m *makers) firstBoot() bool {
	exists, err := m.h.Files.Exists("/etc/machine-id")
	if err == nil && exists {
		var traits []config.Trait
		traits, err = m.h.traits("/etc/machine-id")
		exists = !slices.Contains(traits, config.Uninitialized)
	}
	if err != nil && m.err == nil {
		m.err = err
	}
	return !exists
}

// judgeDropbear finds dropbear's host keys.
func judgeDropbear(ctx context.Context, h finder, r *report) error {
	keys := leftover{kind: "dropbear's host keys", patterns: []string{"/etc/dropbear/dropbear_*_host_key"}}
	files, err := keys.find(h)
	if err != nil || files == nil {
		return err
	}
	on, _, err := h.UnitOn(ctx, "dropbear.service")
	if on {
		const key = "/etc/dropbear/dropbear_ed25519_host_key"
		dir := inRoot(h, "/etc/systemd/system/dropbear.service.d")
		r.remedies = append(r.remedies, "mkdir -p "+dir+`; printf '[Service]\nExecStartPre=/bin/sh -c "test -s `+key+
			` || dropbearkey -t ed25519 -f `+key+`"\n' >`+dir+"/keygen.conf")
	}
	r.add(h, keys, files)
	return err
}
