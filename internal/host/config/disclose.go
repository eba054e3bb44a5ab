package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Kind is the format in which checks parse a file. It decides which of the file's values a snapshot
// holds: those that checks use. A file of kind Withheld is recorded without content.
type Kind int

// The kinds of files. Whole files are world-readable on every machine and have no place for a
// secret.
const (
	Withheld Kind = iota
	Whole
	ProcessArguments
	KernelArguments
	SystemdUnit
	Variables
	NetworkConfig
	NetworkManagerConfig
	TunedProfile
	TunedProfiles
	ModprobeLines
	SysctlLines
	MountTable
	UdevRules
	UdevDatabase
	ResolvConf
	KubeletConfig
	KubeProxyConfig
	K3sConfig
	Kubeconfig
	CredentialProviders
	CNIConfig
	Checkpoint
	Certificate
	ContainerLog
	PolicyFile
)

// As returns files that a recording treats as being of a kind. Callers need it for a file whose
// path is in another file: the path alone does not determine the kind.
func As(files Files, kind Kind) Files {
	if r, records := files.(interface{ As(kind Kind) Files }); records {
		return r.As(kind)
	}
	return files
}

// Discloser decides what a snapshot holds of the files of one machine. It replaces each value that
// is not on the list of a file's kind by a numbered placeholder. Equal values have equal
// placeholders, so a file names the same thing as another one still.
type Discloser struct {
	mu     sync.Mutex
	number map[string]int
	values []string
}

const placeholder = "left-out"

// Hide returns the placeholder of a value, and the value itself if it is empty. A leading hyphen
// remains, because it decides how the words of a command line are read.
func (d *Discloser) Hide(value string) string {
	if rest, is := strings.CutPrefix(value, "-"); is {
		return "-" + d.Hide(rest)
	}
	if value == "" {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, known := d.number[value]
	if !known {
		if d.number == nil {
			d.number = map[string]int{}
		}
		d.values = append(d.values, value)
		n = len(d.values)
		d.number[value] = n
	}
	return fmt.Sprintf("%s-%d", placeholder, n)
}

// Reveal returns text with the values in place of their placeholders: the machine's own programs
// and files need them.
func (d *Discloser) Reveal(text string) string {
	if !strings.Contains(text, placeholder) {
		return text
	}
	return regexp.MustCompile(placeholder+`-[0-9]+`).ReplaceAllStringFunc(text, func(found string) string {
		d.mu.Lock()
		defer d.mu.Unlock()
		n := 0
		if _, err := fmt.Sscanf(found, placeholder+"-%d", &n); err != nil || n < 1 || n > len(d.values) {
			return found
		}
		return d.values[n-1]
	})
}

// Disclose returns what a snapshot holds of a file. It returns false for a file that no filter
// covers.
func (d *Discloser) Disclose(kind Kind, name string, text []byte) ([]byte, bool) {
	if kind == Withheld {
		kind = KindOf(name)
	}
	if len(text) == 0 {
		return text, true
	}
	switch kind {
	case Withheld:
		return nil, false
	case Whole:
		return text, true
	case ProcessArguments:
		return discloseProcess(text), true
	}
	return WithoutSecrets(text), true
}

// KindOf returns the kind of a file with a fixed path.
func KindOf(name string) Kind {
	switch {
	case regexp.MustCompile(`^/proc/[^/]+/cmdline$`).MatchString(name):
		return ProcessArguments
	case regexp.MustCompile(`^/proc/[^/]+/(environ|root/.*|cwd/.*)$`).MatchString(name):
		return Withheld
	}
	return PolicyFile
}

// discloseProcess returns a command line with the name of the program, and of the programs that
// checks know the flags that checks read. The number of arguments remains.
func discloseProcess(text []byte) []byte {
	args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	known := regexp.MustCompile(`(^|/)(kube-proxy|hyperkube|kubelite|k3s(-\w+)?|rke2)( (server|agent))?$`).MatchString(args[0])
	if !regexp.MustCompile(`^[\w./@+-]+( (server|agent))?$`).MatchString(args[0]) {
		args[0] = placeholder
	}
	hide := func(string) string { return placeholder }
	if known {
		disclosedWords(args[1:], hide)
	} else {
		for i := range args[1:] {
			args[1+i] = placeholder
		}
	}
	return []byte(strings.Join(args, "\x00") + string(text[len(bytes.TrimRight(text, "\x00")):]))
}
