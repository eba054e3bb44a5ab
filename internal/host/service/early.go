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
func (u Unit) BeforeGate(files Files) (all []Early, gated bool) {
	for _, c := range append(u.commands("ExecCondition"), u.commands("ExecStartPre")...) {
		if c.isGate() {
			return all, true
		}
		for _, s := range c.programs(files) {
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

// programs returns the programs of a command: its own, or each line of a shell's code or script. Variables and
// functions are not expanded.
func (c command) programs(files Files) []simple {
	all := []simple{{words: withoutWrappers(c.words)}}
	code, _ := c.script(files)
	isCode := regexp.MustCompile(`^-\w*c$`).MatchString
	if i := slices.IndexFunc(c.words, isCode); i > 0 && i+1 < len(c.words) && strings.HasSuffix(c.words[0], "sh") {
		code = c.words[i+1]
	}
	waits := regexp.MustCompile(`(^|[\s;&])wait\b`).MatchString(code)
	for line := range strings.Lines(code) {
		words, _ := config.Words(line)
		var now []string
		for _, w := range append(words, ";") {
			if strings.HasPrefix(w, "#") {
				break
			}
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

// leavesRunning returns what a command leaves running when it ends, or "".
func (s simple) leavesRunning() string {
	if len(s.words) == 0 {
		return ""
	}
	const container, daemon = "starts a container in the background", "starts a service in the background"
	program, args := path.Base(s.words[0]), s.words[1:]
	has := func(flags ...string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(flags, a) })
	}
	starts := ""
	switch program {
	case "docker", "podman", "nerdctl", "ctr", "runc", "crun", "docker-compose", "podman-compose":
		if detaches(args, strings.HasSuffix(program, "-compose")) {
			starts = container
		}
	case "crictl":
		if has("run", "runp", "start") {
			starts = container
		}
	case "machinectl":
		if has("start") {
			starts = container
		}
	case "systemd-run":
		if !has("--wait", "--scope", "--pipe", "-P", "--pty", "-t", "--shell", "-S") {
			starts = daemon
		}
	case "systemctl":
		if startsUnit(args) {
			starts = daemon
		}
	case "service", "rc-service":
		if len(args) == 2 && (args[1] == "start" || args[1] == "restart") && !isRuntime(args[0]) {
			starts = daemon
		}
	case "start-stop-daemon":
		if has("-S", "--start") {
			starts = daemon
		}
	case "daemonize", "daemon", "setsid":
		starts = daemon
	}
	if starts == "" && s.background {
		starts = "runs " + program + " in the background"
	}
	return starts
}

// detaches reports whether the arguments of docker and its like start a container that stays when the command ends.
func detaches(args []string, compose bool) bool {
	other := []string{
		"rm", "rmi", "pull", "stop", "kill", "exec", "logs", "ps", "images", "image", "inspect", "load", "save", "create", "cp", "network",
		"volume", "build", "wait", "prune", "system", "login", "tag", "push", "down", "snapshots", "content", "namespaces",
	}
	for i, a := range args {
		rest := args[i+1:]
		switch {
		case slices.Contains(other, a):
			return false
		case a == "run":
			return detached(rest)
		case a == "start", a == "restart":
			attached := regexp.MustCompile(`^-[ai]+$|^--attach|^--interactive`)
			return a == "restart" || !slices.ContainsFunc(rest, attached.MatchString)
		case a == "up" && (compose || slices.Contains(args[:i], "compose")):
			return slices.Contains(rest, "-d") || slices.Contains(rest, "--detach")
		case a == "play" || a == "kube":
			return !slices.Contains(rest, "--wait")
		}
	}
	return false
}

// detached reports whether an option before the image keeps the container running in the background.
func detached(args []string) bool {
	alone := regexp.MustCompile(`^-[itPqd]+$|^--(rm|privileged|init|interactive|tty|read-only|replace|no-healthcheck|publish-all|` +
		`quiet|net-host|tls-verify|env-host|with-ns|null-io|gpus-all|sig-proxy|oom-kill-disable|disable-content-trust|rootfs)$|=`)
	for i := 0; i < len(args) && strings.HasPrefix(args[i], "-"); i++ {
		a := args[i]
		if regexp.MustCompile(`^-[itPq]*d[itPq]*$|^--detach(=true)?$`).MatchString(a) {
			return true
		}
		if !alone.MatchString(a) {
			i++ // its value
		}
	}
	return false
}

// startsUnit reports whether the arguments of systemctl start a service that may run containers by itself. Container runtimes do not,
// nor do systemd's own services, mounts and sockets.
func startsUnit(args []string) bool {
	starts := slices.Contains(args, "--now")
	var units []string
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "-"):
		case a == "start", a == "restart", a == "reload-or-restart", a == "isolate":
			starts = true
		default:
			units = append(units, a)
		}
	}
	return starts && slices.ContainsFunc(units, func(unit string) bool {
		name, suffix, _ := strings.Cut(unit, ".")
		verb := slices.Contains([]string{"enable", "disable", "stop", "mask", "unmask", "reenable"}, unit)
		return !verb && !strings.HasPrefix(name, "systemd-") &&
			!isRuntime(name) && (suffix == "" || suffix == "service" || suffix == "target")
	})
}

func isRuntime(name string) bool {
	name = strings.TrimSuffix(name, ".service")
	return slices.Contains([]string{"docker", "containerd", "crio", "cri-o", "cri-docker", "cri-dockerd", "podman", "dockershim"}, name)
}
