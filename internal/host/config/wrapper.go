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

// unwrap returns the part of a command line that begins with kubelet's program, behind wrappers and a shell that runs one
// simple command. It returns the command line whole if kubelet is not in it in this way.
func unwrap(command []argument) []argument {
	rest := command
	for range mostWrappers {
		switch program := path.Base(rest[0].text); {
		case isKubelet(program):
			return rest
		case isShell(program):
			rest = shellCommand(rest)
		case slices.Contains(wrappers, program):
			next := slices.IndexFunc(rest[1:], func(w argument) bool {
				name := path.Base(w.text)
				return !strings.HasPrefix(w.text, "-") && (isKubelet(name) || isShell(name) || slices.Contains(wrappers, name))
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

func isKubelet(base string) bool { return base == "kubelet" || base == "hyperkube" }
