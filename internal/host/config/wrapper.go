package config

import (
	"path"
	"slices"
	"strings"
)

// wrappers are programs that become the program that follows on their command line, after options of their own, or start it and wait.
var wrappers = []string{
	"chrt", "choom", "dbus-run-session", "env", "exec", "ionice", "kubenswrapper", "nice", "nohup", "nsenter", "numactl",
	"prlimit", "setarch", "setpriv", "setsid", "stdbuf", "systemd-inhibit", "taskset", "unshare",
}

// container reports whether a program runs another one in a file tree of its own.
func container(program string) bool {
	return slices.Contains([]string{"docker", "nerdctl", "podman"}, path.Base(program))
}

// unwrap returns the part of a command line that begins with kubelet's program, or image, behind wrappers and a shell that runs one
// simple command. It returns the command line whole if kubelet is not in it in this way.
func unwrap(command []argument) []argument {
	rest := command
	for range mostWrappers {
		switch program := path.Base(rest[0].text); {
		case isKubelet(program):
			return rest
		case isShell(program):
			rest = shellCommand(rest)
		case container(program):
			if image := imageOf(rest); image > 0 && isKubelet(path.Base(rest[image].text)) {
				return inContainer(rest[:image], rest[image:])
			}
			return command
		case slices.Contains(wrappers, program):
			next := slices.IndexFunc(rest[1:], func(w argument) bool {
				name := path.Base(w.text)
				return !strings.HasPrefix(w.text, "-") && (isKubelet(name) || isShell(name) || container(name) || slices.Contains(wrappers, name))
			})
			if next < 0 {
				return command
			}
			rest = rest[1+next:]
		default:
			return command
		}
		if len(rest) == 0 {
			return command
		}
	}
	return command
}

// mostWrappers bounds the wrappers in one another.
const mostWrappers = 8

func isShell(base string) bool { return slices.Contains([]string{"sh", "bash", "dash"}, base) }

// shellCommand returns the words of a shell's only command, or nil if the shell does anything else with them.
func shellCommand(shell []argument) (words []argument) {
	if len(shell) != 3 || !slices.Contains([]string{"-c", "-ec", "-lc"}, shell[1].text) ||
		strings.ContainsAny(shell[2].text, "$`;|&<>(){}*?\n#~\\") {
		return nil
	}
	for _, w := range SplitWords(shell[2].text) {
		words = append(words, argument{w, shell[2].file})
	}
	return words
}

// imageOf returns the index of the image in the words of docker run, or 0.
func imageOf(words []argument) int {
	run := slices.IndexFunc(words, func(w argument) bool { return w.text == "run" })
	for i := run + 1; run > 0 && i < len(words); i++ {
		w := words[i].text
		switch {
		case !strings.HasPrefix(w, "-"):
			return i
		case !strings.Contains(w, "=") && !slices.Contains([]string{"-d", "-i", "-t", "-it", "-ti", "--detach", "--init", "--interactive",
			"--no-healthcheck", "--no-hosts", "--privileged", "--read-only", "--replace", "--rm", "--tty"}, w):
			i++ // the option's value
		}
	}
	return 0
}

// isKubelet reports whether the last component of a program's path, or of an image, is kubelet's: an image may have a tag or a digest.
func isKubelet(base string) bool {
	base, _, _ = strings.Cut(base, "@")
	base, _, _ = strings.Cut(base, ":")
	return base == "kubelet" || base == "hyperkube"
}

// inContainer returns kubelet's command line in a container, without the options whose file the container does not share with the
// machine under the same path.
func inContainer(start, kubelet []argument) []argument {
	var words []string
	for _, w := range start {
		words = append(words, w.text)
	}
	shared := func(name string) bool {
		return slices.ContainsFunc(flagValues(words, "-v", "--volume"), func(volume string) bool {
			from, to, _ := strings.Cut(volume, ":")
			to, _, _ = strings.Cut(to, ":")
			return from == to && (name == from || strings.HasPrefix(name, strings.TrimSuffix(from, "/")+"/"))
		})
	}
	command := kubelet[:1:1]
	for i := 1; i < len(kubelet); i++ {
		w := kubelet[i]
		switch flag, value, assigned := strings.Cut(w.text, "="); {
		case assigned && path.IsAbs(value) && !shared(value):
		case !assigned && strings.HasPrefix(flag, "--") && i+1 < len(kubelet) && path.IsAbs(kubelet[i+1].text) && !shared(kubelet[i+1].text):
			i++
		default:
			command = append(command, w)
		}
	}
	return command
}
