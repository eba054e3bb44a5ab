package checkstest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// NeighbourHeader is the first line of /proc/net/stat/arp_cache.
const NeighbourHeader = "entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast " +
	"periodic_gc_runs forced_gc_runs unresolved_discards table_fulls\n"

// Tree returns a file tree on disk, opened as an image. "-> TARGET" is a symbolic link; a name that
// ends in / is an empty directory; a script or an ELF file is executable.
func Tree(t *testing.T, files map[string]string) *host.Host {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		to, link := strings.CutPrefix(content, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.Mkdir(at, 0o755)
		case link:
			err = os.Symlink(to, at)
		default:
			mode := os.FileMode(0o644)
			if strings.HasPrefix(content, "#!") || strings.HasPrefix(content, "\x7fELF") {
				mode = 0o755
			}
			err = os.WriteFile(at, []byte(content), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Node returns a machine with files, and with parameters by their path below /proc/sys.
func Node(files map[string]string, sysctls map[string]string) *hosttest.Machine {
	m := &hosttest.Machine{Files: map[string]string{}}
	maps.Copy(m.Files, files)
	for key, value := range sysctls {
		m.Sysctl(key, value)
	}
	return m
}

// WithUnit gives the machine a systemd unit in a state.
func WithUnit(m *hosttest.Machine, unit, active, file string) *hosttest.Machine {
	m.Units = map[string][2]string{unit: {active, file}}
	return m
}

// DefaultLink is systemd's 99-default.link.
const DefaultLink = "[Match]\nOriginalName=*\n\n[Link]\nNamePolicy=keep kernel database onboard slot path\nMACAddressPolicy=persistent\n"

// ForwardPolicy requires IPv4 forwarding.
const ForwardPolicy = "sysctl \"net.ipv4.ip_forward\" { value = 1 }\n"

// Release is a kernel that reports the release in Released.
type Release struct {
	host.Kernel
	Released string
}

// Release returns Released.
func (r Release) Release() (string, error) { return r.Released, nil }

// SecondRead wraps files so that the file Name has the content Then from the second read on.
type SecondRead struct {
	host.Files
	Name, Then string
	Read       bool
}

// ReadFile returns Then for Name after its first read.
func (s *SecondRead) ReadFile(name string) ([]byte, error) {
	if name == s.Name && s.Read {
		return []byte(s.Then), nil
	}
	s.Read = s.Read || name == s.Name
	return s.Files.ReadFile(name)
}

// WithModuleIndex returns the machine as a host whose modules.dep lists the machine's modules.
func WithModuleIndex(m *hosttest.Machine) *host.Host {
	dep := ""
	for name := range m.Modules {
		dep += "kernel/net/" + strings.ReplaceAll(name, "_", "-") + ".ko.xz:\n"
	}
	m.Files["/lib/modules/6.1.0/modules.dep"] = dep
	return m.Host()
}
