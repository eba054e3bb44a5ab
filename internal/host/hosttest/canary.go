package hosttest

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

// Canaries plants text that no output may repeat in the answers of a host. It also records which
// answers were read, so that the next run can plant those: no test needs a list of files.
type Canaries struct {
	Place   Place // the answer that gets canaries; the zero value gives none to any
	Variant int   // how they are planted
	mu      sync.Mutex
	read    map[Place]int // every answer that was read, and the number of its variants
	planted int
}

// Place is an answer of a host: a file with its kind, a directory, or the answer to another query.
type Place struct {
	What string // file, dir or rules
	Name string
	Kind config.Kind
}

func (p Place) String() string { return p.What + " " + p.Name }

// Canary matches a canary in an output, also one that is shortened as yaml.v3 shortens values.
var Canary = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)cnry7f\w*`) })

// WithCanaries returns a text with a canary in place of each @, and their number.
func WithCanaries(text string) (planted string, n int) { return plantMarks(text, "@") }

func plantMarks(text, at string) (planted string, n int) {
	for strings.Contains(text, at) {
		n++
		text = strings.Replace(text, at, fmt.Sprintf("Cnry7f%04d", n), 1)
	}
	return text, n
}

// Read returns the answers that were read, each with the number of its variants.
func (c *Canaries) Read() map[Place]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.read)
}

// Planted returns the number of canaries.
func (c *Canaries) Planted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.planted
}

// Host returns h with canaries.
func (c *Canaries) Host(h *host.Host) *host.Host {
	with := *h
	with.Files, with.Rules = canaryFiles{h.Files, c, config.Withheld}, canaryRules{h.Rules, c}
	return &with
}

// answer returns the text of an answer, with canaries if it is the place for them. plant returns a
// variant of the text, with an @ at the position of each canary.
func (c *Canaries) answer(p Place, text string, variants int, plant func(text string, variant int) string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read == nil {
		c.read = map[Place]int{}
	}
	c.read[p] = max(c.read[p], variants)
	if p != c.Place || c.Variant >= variants {
		return text
	}
	text, n := plantMarks(plant(text, c.Variant), mark)
	c.planted = max(c.planted, n) // each read of the same answer plants the same
	return text
}

// mark stands for a canary; no configuration has it.
const mark = "\x01"

type canaryFiles struct {
	host.Files
	c    *Canaries
	kind config.Kind
}

// As returns files whose content is of a kind.
func (f canaryFiles) As(kind config.Kind) config.Files {
	f.kind = kind
	return f
}

func (f canaryFiles) ReadFile(name string) ([]byte, error) { return f.read(name, f.Files.ReadFile) }
func (f canaryFiles) Tail(name string) ([]byte, error)     { return f.read(name, f.Files.Tail) }

func (f canaryFiles) read(name string, read func(string) ([]byte, error)) ([]byte, error) {
	kind := f.kind
	if kind == config.Withheld {
		kind = config.KindOf(name)
	}
	text, err := read(name)
	if kind == config.Whole || Canary().MatchString(name) {
		return text, err
	}
	place := Place{"file", name, kind}
	got := f.c.answer(place, string(text), fileVariants(kind, string(text)), func(text string, variant int) string {
		err = nil
		return plantFile(kind, text, variant)
	})
	return []byte(got), err
}

// plantedNames are the files that a directory with canaries has in addition.
func plantedNames() []string {
	return []string{"zz-planted.conf", "zz-planted.json", "zz-planted.link", "zz-planted.network", "zz-planted.rules", "zz-planted.yaml"}
}

func (f canaryFiles) ReadDir(name string) ([]string, error) {
	names, err := f.Files.ReadDir(name)
	f.c.answer(Place{"dir", name, config.Whole}, "", 1, func(string, int) string {
		names, err = slices.Sorted(slices.Values(append(slices.Clone(names), plantedNames()...))), nil
		return ""
	})
	if strings.HasPrefix(path.Base(name), "zz-planted") {
		return nil, fs.ErrNotExist
	}
	return names, err
}

// Values is the first variant in which a canary replaces a value; before it come additions, only a
// canary, and a broken line.
const Values = 3

// fileVariants returns the number of variants: additions, only a canary, a broken line, and each line with a canary in place of its value.
func fileVariants(kind config.Kind, text string) int {
	const mostLines = 60
	if text == "" {
		return Values
	}
	return Values + min(len(fileLines(kind, text)), mostLines)
}

func fileLines(kind config.Kind, text string) []string {
	return strings.Split(strings.TrimRight(text, "\x00\n"), between(kind))
}

func between(kind config.Kind) string {
	switch kind {
	case config.ProcessArguments:
		return "\x00"
	case config.KernelArguments:
		return " "
	}
	return "\n"
}

func plantFile(kind config.Kind, text string, variant int) string {
	add := strings.ReplaceAll(additions(kind), "@", mark)
	switch variant {
	case 0:
		return text + add
	case 1:
		return mark
	case 2:
		return text + between(kind) + "\t{[\"" + mark + ": " + mark + between(kind)
	}
	lines := fileLines(kind, text)
	at := variant - Values
	line := strings.TrimRight(lines[at], " ")
	if end := assignment().FindStringSubmatch(line); end != nil && end[1]+end[2] != "" {
		lines[at] = end[1] + end[2] + mark
	} else {
		lines[at] = mark
	}
	return strings.Join(lines, between(kind)) + between(kind)
}

var assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.*?[=:]\s*)\S.*$|^(\s*- ).*$`) })

// additions returns the lines that a file of a kind gets, with a canary for each @: comments, and
// settings that no check judges.
func additions(kind config.Kind) string {
	switch kind {
	case config.ProcessArguments:
		return "\x00--token=@\x00--hostname-override\x00@\x00-p@\x00@"
	case config.KernelArguments:
		return " rd.iscsi.password=@ @"
	case config.SystemdUnit:
		return "\n# @\n[Unit]\nDescription=@\nX-A=@\n[Service]\nEnvironment=\"PLANTED=@\" B=@\nLoadCredential=@:/etc/@\nSetCredential=a:@\n" +
			"ExecStartPre=-/bin/sh -c 'curl -H \"Token: @\" https://a:@@@/ | grep @ > /dev/null'\n" +
			"ExecStopPost=/bin/echo @\nEnvironmentFile=-/etc/planted.env\n"
	case config.Variables:
		return "\n# @\nPLANTED=@\nHTTPS_PROXY=\"http://u:@@@:3128\"\nKUBELET_EXTRA_ARGS=--token=@ --cluster-domain=@\nexport A=@\n"
	case config.NetworkConfig, config.NetworkManagerConfig:
		return "\n# @\n[WireGuard]\nPrivateKey=@\n[connection]\nid=@\n[wifi-security]\npsk=@\n@\n"
	case config.ModprobeLines:
		return "\n# @\noptions wifi key=@ password=@ # @\ninstall planted /bin/sh -c 'echo @'\nalias planted @\n"
	case config.SysctlLines:
		return "\n# @\n; @\nplanted.password = @\n"
	case config.MountTable:
		return "\n# @\n//host/@ /mnt/p cifs username=@,password=@,credentials=/root/x 0 0\nhttps://u:@@h/ /mnt/d davfs @ 0 0\n"
	case config.UdevRules:
		return "\n# @\nSUBSYSTEM==\"net\", RUN+=\"/bin/a @\", ENV{PLANTED}=\"@\"\n"
	case config.TunedProfile:
		return "\n# @\n[planted]\nx=@\n[script]\nscript=@\n"
	case config.KubeletConfig, config.KubeProxyConfig, config.K3sConfig:
		return "\n# @\nplanted: @\nstaticPodURLHeader:\n  Authorization: [\"@\"] # @\n" +
			"clientConnection:\n  kubeconfig: \"@\"\ntoken: @\nplanted-list: [@]\n"
	case config.Kubeconfig:
		return "\n# @\nplanted:\n- name: \"@\"\n  token: @\n  user:\n    client-key-data: @\n    exec: {env: [{value: @}], args: [@]}\n"
	case config.ResolvConf:
		return "\n# @\nsearch @\noptions @\n"
	case config.Certificate:
		return "\n-----BEGIN PRIVATE KEY-----\n@\n-----END PRIVATE KEY-----\nX: @\n"
	case config.PolicyFile:
		return "\n# @\nvariable \"planted\" {\n  default = \"@\"\n}\n"
	case config.ContainerLog:
		return "\n2026-01-02T03:04:05.6Z stderr F @ token=@\n"
	case config.UdevDatabase:
		return "\nE:PLANTED=@\nS:@\n"
	}
	return "\n# @\n@\n"
}

type canaryRules struct {
	host.Rules
	c *Canaries
}

func (r canaryRules) Dumps(ctx context.Context, read func(source string, dump io.Reader) error) error {
	return r.Rules.Dumps(ctx, func(source string, dump io.Reader) error {
		text, err := io.ReadAll(dump)
		if err != nil {
			return err
		}
		planted := r.c.answer(Place{"rules", source, config.Whole}, string(text), 1, plantRules)
		return read(source, strings.NewReader(planted))
	})
}

// plantRules adds rules of another program to each table of iptables-save.
func plantRules(text string, _ int) string {
	const planted = "-A PLANTED -m comment --comment \"" + mark + "\" -j ACCEPT\n-A PLANTED -m comment --comment " + mark + " -j RETURN\n" +
		"-A PLANTED -m string --string \"" + mark + "\" --algo bm --to 65535 -j DROP\n-A PLANTED -j LOG --log-prefix \"" + mark + " \"\n"
	return regexp.MustCompile(`(?m)^(\*(filter|nat|mangle)\n(:.*\n)*)`).ReplaceAllString(text, "${1}:PLANTED - [0:0]\n"+planted)
}
