package service

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// Early is a command that runs before the gate and leaves something running: kubelet or a container could then run on a node that the
// gate still holds.
type Early struct {
	Entry config.Entry
	What  string // completes "it ...": "starts a container in the background"
}

// BeforeGate returns the commands before the gate that leave something running. A drop-in's ExecStartPre= comes after those of the unit
// itself. A command that systemd waits for, as a container that copies files and ends, is not one of them. gated is false if the unit
// has no gate.
func (u Unit) BeforeGate() (all []Early, gated bool) {
	for _, c := range append(u.commands("ExecCondition"), u.commands("ExecStartPre")...) {
		if c.isGate() {
			return all, true
		}
		for _, s := range c.programs() {
			if what := s.leavesRunning(); what != "" {
				all = append(all, Early{c.entry, what})
				break
			}
		}
	}
	return all, false
}

// simple is one program with its arguments.
type simple struct {
	words      []string
	background bool // a shell does not wait for it
}

// programs returns the programs of a command: its own, and each of a shell's code. Variables and functions are not expanded, and the files
// of scripts not read.
func (c command) programs() []simple {
	all := []simple{{words: withoutWrappers(c.words)}}
	code := ""
	isCode := regexp.MustCompile(`^-\w*c$`).MatchString
	if i := slices.IndexFunc(c.words, isCode); i > 0 && i+1 < len(c.words) && strings.HasSuffix(c.words[0], "sh") {
		code = c.words[i+1]
	}
	waits := regexp.MustCompile(`(^|[\s;&])wait\b`).MatchString(code)
	for line := range strings.Lines(code) {
		words, _ := config.Words(line)
		if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
			words = words[:i]
		}
		var now []string
		for _, w := range append(words, ";") {
			word := strings.TrimRight(w, ";&|)")
			if word != "" {
				now = append(now, word)
			}
			if end := w[len(word):]; end != "" && now != nil {
				all = append(all, simple{withoutWrappers(now), !waits && strings.HasSuffix(end, "&") && !strings.HasSuffix(end, "&&")})
				now = nil
			}
		}
	}
	return all
}

// withoutWrappers returns a command without the keywords of a shell, assignments, and programs that run their arguments.
func withoutWrappers(words []string) []string {
	wrapper := regexp.MustCompile(`^(if|then|else|elif|do|while|until|!|[({]+|exec|command|\w+=.*|-.*|[\d.]+[smhd]?)$|` +
		`^(.*/)?(env|sudo|timeout|nice|ionice|nohup|stdbuf)$`)
	for len(words) > 0 && wrapper.MatchString(words[0]) {
		words = words[1:]
	}
	return words
}

// leavesRunning returns what a command leaves running when it ends, or "". Container runtimes run nothing by themselves, nor do systemd's
// own services, mounts and sockets.
func (s simple) leavesRunning() string {
	if len(s.words) == 0 {
		return ""
	}
	const container, daemon = "starts a container in the background", "starts a service in the background"
	const options = `(?:-\S+ (?:[^-\s]\S* )?)*?` // each with or without a value
	const detached = options + `(-[itPq]*d[itPq]*|--detach(=true)?) `
	harmless := regexp.MustCompile(` (systemd-\S+|(docker|containerd|crio|cri-o|cri-docker|cri-dockerd|podman|dockershim)(\.service)?|` +
		`\S+\.(socket|mount|timer|path|slice|swap|device))( |$)`)
	program := path.Base(s.words[0])
	line := program + " " + strings.Join(s.words[1:], " ") + " "
	for _, starts := range []struct{ what, line, unless string }{
		{container, `^(docker|podman|nerdctl|ctr|runc|crun) ` + options + `(container )?run ` + detached, ""},
		{container, `^(docker|podman|nerdctl) ` + options + `(container )?start `, ` (-[ai]+|--attach|--interactive)`},
		{container, `^(docker|podman|nerdctl) ` + options + `(container )?restart `, ""},
		{container, `^(docker|podman|nerdctl)[ -]compose .*\bup .*(-d|--detach) `, ""},
		{container, `^podman ` + options + `(play|kube) `, ` (--wait|down) `},
		{container, `^(crictl .*(run|runp|start)|machinectl .*start) `, ""},
		{daemon, `^systemd-run `, ` (--(wait|scope|pipe|pty|shell)|-[PtS]) `},
		{daemon, `^systemctl ` + options + `(start|restart|reload-or-restart|isolate|enable --now) ` + options + `[^-\s]`, ""},
		{daemon, `^(service|rc-service) \S+ (start|restart) `, ""},
		{daemon, `^(start-stop-daemon .*(-S|--start)|daemonize|daemon|setsid) `, ""},
	} {
		rest := line
		if starts.what == daemon {
			rest = harmless.ReplaceAllString(line, " ")
		}
		if regexp.MustCompile(starts.line).MatchString(rest) && (starts.unless == "" || !regexp.MustCompile(starts.unless).MatchString(rest)) {
			return starts.what
		}
	}
	if s.background {
		return "runs " + program + " in the background"
	}
	return ""
}
