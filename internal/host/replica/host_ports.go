package replica

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
	"nodegate/internal/ruleset"
)

// CachedResults is where libcni keeps the networks of the Pods that run (CacheDir in its api.go).
const CachedResults = "/var/lib/cni/results"

// HostPorts returns the host ports that the container runtime asked portmap for, of the Pods whose links are there. Files that cannot be
// read, or are no results, have none.
func (c *Capture) HostPorts(dir string) (list []ruleset.HostPort) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		var cached struct { // cachedInfo in libcni's api.go; the names in the mappings differ in case between runtimes
			Config         []byte
			CapabilityArgs struct {
				PortMappings []struct {
					HostPort, ContainerPort uint16
					Protocol, HostIP        string
				}
			}
			Result struct {
				IPs        []struct{ Address netip.Prefix }
				Interfaces []struct{ Name string }
			}
		}
		text, err := file.Read(filepath.Join(dir, e.Name()), 1<<20)
		if err != nil || !bytes.Contains(text, []byte("portMappings")) || json.Unmarshal(text, &cached) != nil ||
			!bytes.Contains(cached.Config, []byte(`"portmap"`)) || bytes.Contains(cached.Config, []byte("conditionsV")) { // only for some senders
			continue
		}
		if !slices.ContainsFunc(c.Links, func(l Link) bool {
			return slices.ContainsFunc(cached.Result.Interfaces, func(i struct{ Name string }) bool { return l.Kind == "veth" && i.Name == l.Name })
		}) {
			continue // the Pod is gone
		}
		for _, m := range cached.CapabilityArgs.PortMappings {
			protocol, known := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[strings.ToLower(m.Protocol)]
			for _, ip := range cached.Result.IPs {
				at, err := netip.ParseAddr(m.HostIP)
				if err != nil {
					at = netip.IPv4Unspecified()
				}
				if known && m.HostPort > 0 && (at.IsUnspecified() || at.Is6() == ip.Address.Addr().Is6()) {
					list = append(list, ruleset.HostPort{Protocol: protocol, At: netip.AddrPortFrom(at, m.HostPort),
						To: netip.AddrPortFrom(ip.Address.Addr(), m.ContainerPort)})
				}
			}
		}
	}
	return list
}
