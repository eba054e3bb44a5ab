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
	Public  bool  // every user may read the file that has them
	mu      sync.Mutex
	read    map[Place]int // every answer that was read, and the number of its variants
	planted int
}

// Place is an answer of a host: a file, a directory, or the answer to another query.
type Place struct {
	What string // file, dir or rules
	Name string
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

// Host returns the machine with canaries.
func (c *Canaries) Host(m *Machine) *host.Host {
	h := m.Host()
	h.Files, h.Rules = host.Marked(canarySource{files{m}, c}), canaryRules{h.Rules, c}
	return h
}

// Text returns the text of a file with canaries.
func (c *Canaries) Text(m *Machine, name string) (string, error) {
	text, _, err := canarySource{files{m}, c}.read(name)
	return text, err
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

type canarySource struct {
	files
	c *Canaries
}

func (f canarySource) ReadFile(name string) ([]byte, fs.FileMode, error) {
	text, mode, err := f.read(name)
	return []byte(text), mode, err
}

func (f canarySource) read(name string) (string, fs.FileMode, error) {
	_, mode, err := f.files.ReadFile(name)
	text := f.Files[name]
	_, kernels := config.Kept(name, nil)
	parameter := strings.HasPrefix(name, "/proc/sys/") && name != "/proc/sys/kernel/hostname"
	if kernels && !config.IsPolicy(name) && !parameter || Canary().MatchString(name) {
		return text, mode, err
	}
	place := Place{"file", name}
	got := f.c.answer(place, text, fileVariants(name, text), func(text string, variant int) string {
		err, mode = nil, 0o600
		if f.c.Public {
			mode = 0o644
		}
		return plantFile(name, text, variant)
	})
	return got, mode, err
}

// plantedNames are the files that a directory with canaries has in addition.
func plantedNames() []string {
	return []string{"zz-planted.conf", "zz-planted.json", "zz-planted.link", "zz-planted.network", "zz-planted.rules", "zz-planted.yaml"}
}

func (f canarySource) ReadDir(name string) ([]string, error) {
	names, err := f.files.ReadDir(name)
	f.c.answer(Place{"dir", name}, "", 1, func(string, int) string {
		names, err = slices.Sorted(slices.Values(append(slices.Clone(names), plantedNames()...))), nil
		return ""
	})
	if strings.HasPrefix(path.Base(name), "zz-planted") {
		return nil, fs.ErrNotExist
	}
	return names, err
}

// Values is the first variant in which a canary replaces a value; before it come additions, only a canary, and a broken line.
const Values = 3

// fileVariants returns the number of variants: additions, only a canary, a broken line, and each line with a canary in place of its value.
func fileVariants(name, text string) int {
	const mostLines = 60
	if text == "" {
		return Values
	}
	return Values + min(len(fileLines(name, text)), mostLines)
}

func fileLines(name, text string) []string {
	return strings.Split(strings.TrimRight(text, "\x00\n"), between(name))
}

func between(name string) string {
	switch {
	case name == "/proc/cmdline":
		return " "
	case strings.HasSuffix(name, "/cmdline"):
		return "\x00"
	}
	return "\n"
}

func plantFile(name, text string, variant int) string {
	add := strings.ReplaceAll(additions(name), "@", mark)
	switch variant {
	case 0:
		return text + add
	case 1:
		return mark
	case 2:
		return text + between(name) + "\t{[\"" + mark + ": " + mark + between(name)
	}
	lines := fileLines(name, text)
	at := variant - Values
	line := strings.TrimRight(lines[at], " ")
	if end := assignment().FindStringSubmatch(line); end != nil && end[1]+end[2] != "" {
		lines[at] = end[1] + end[2] + mark
	} else {
		lines[at] = mark
	}
	return strings.Join(lines, between(name)) + between(name)
}

var assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.*?[=:]\s*)\S.*$|^(\s*- ).*$`) })

// additions returns the lines that a file gets, with a canary for each @: comments, and settings that no check judges.
func additions(name string) string {
	for _, of := range []struct{ pattern, lines string }{
		{`/systemd/system/`, "\n# @\n[Unit]\nDescription=@\nX-A=@\n" +
			"ConditionEnvironment=T=@\nConditionKernelCommandLine=!t=@\n[Service]\nEnvironment=\"PLANTED=@\" " +
			"B=@\nLoadCredential=@:/etc/@\nSetCredential=a:@\n" +
			"ExecStartPre=-/bin/sh -c 'curl -H \"Token: @\" https://a:@@@/ | grep @ > /dev/null'\n" +
			"ExecStopPost=/bin/echo @\nEnvironmentFile=-/etc/planted.env\n"},
		{`/tuned/`, "\n# @\n[planted]\nx=@\n[script]\nscript=@\n"},
		{`kubelet\.conf$|kubeconfig`, "\n# @\nplanted:\n- name: \"@\"\n" +
			"  server: https://api/?token=@\n  token: @\n  user:\n    client-key-data: @\n    exec: {env: " +
			"[{value: @}], args: [@]}\n"},
		{`\.log$`, "\n2026-01-02T03:04:05.6Z stderr F @ token=@\n"},
		{`^/proc/\d+/cmdline$`, "\x00--token=@\x00--hostname-override\x00@\x00-p@\x00@"},
		{`^/proc/cmdline$`, " rd.iscsi.password=@ @"},
		{`\.env$|^/etc/(default|sysconfig)/`, "\n# @\nPLANTED=@\nHTTPS_PROXY=\"http://u:@@@:3128\"\nKUBELET_EXTRA_ARGS=--token=@ " +
			"--cluster-domain=@\nexport A=@\n"},
		{`/systemd/(network|logind)|/NetworkManager/`, "\n# @\n[WireGuard]\nPrivateKey=@\n[connection]\nid=@\n[wifi-security]\npsk=@\n@\n"},
		{`/modprobe\.d/`, "\n# @\noptions wifi key=@ password=@ # @\ninstall planted /bin/sh -c 'echo @'\nalias planted @\n"},
		{`sysctl`, "\n# @\n; @\nplanted.password = @\n"},
		{`mounts$|fstab$`, "\n# @\n//host/@ /mnt/p cifs username=@,password=@,credentials=/root/x 0 0\nhttps://u:@@h/ /mnt/d davfs @ 0 0\n"},
		{`\.rules$`, "\n# @\nSUBSYSTEM==\"net\", RUN+=\"/bin/a @\", ENV{PLANTED}=\"@\"\n"},
		{`\.ya?ml$|kube-proxy|config\.conf|/kubelet\.conf\.d/`, "\n# @\nplanted: @\nstaticPodURLHeader:\n  Authorization: [\"@\"] # @\n" +
			"clientConnection:\n  kubeconfig: \"@\"\ntoken: @\nplanted-list: [@]\n"},
		{`resolv\.conf$`, "\n# @\nsearch @\noptions @\n"},
		{`\.(pem|crt|key)$`, "\n-----BEGIN PRIVATE KEY-----\n@\n-----END PRIVATE KEY-----\nX: @\n"},
		{`\.hcl$`, "\n# @\nvariable \"planted\" {\n  default = \"@\"\n}\n"},
		{`^/run/udev/data/`, "\nE:PLANTED=@\nS:@\n"},
	} {
		if regexp.MustCompile(of.pattern).MatchString(name) {
			return of.lines
		}
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
		planted := r.c.answer(Place{"rules", source}, string(text), 1, plantRules)
		return read(source, strings.NewReader(planted))
	})
}

// plantRules adds rules of another program to each table of iptables-save.
func plantRules(text string, _ int) string {
	const planted = "-A PLANTED -m comment --comment \"" + mark + "\" -j ACCEPT\n-A PLANTED -m comment --comment " + mark + " -j RETURN\n" +
		"-A PLANTED -m string --string \"" + mark + "\" --algo bm --to 65535 -j DROP\n-A PLANTED -j LOG --log-prefix \"" + mark + " \"\n"
	return regexp.MustCompile(`(?m)^(\*(filter|nat|mangle)\n(:.*\n)*)`).ReplaceAllString(text, "${1}:PLANTED - [0:0]\n"+planted)
}
