package proxyrules

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// hasher recomputes the hashes in chain names without an allocation for each.
type hasher struct {
	in  []byte
	out [16]byte
}

// sum16 returns the first 16 base32 characters of the SHA-256 of the joined parts; the next call overwrites them.
//
// It is the suffix of KUBE-SVC-, KUBE-SVL-, KUBE-EXT-, KUBE-FW- and (until 1.23) KUBE-XLB- chains: of a Service port, spelled
// `ns/name[:port]` (until 1.18 an unnamed port keeps its colon), and the protocol in lower case. Of KUBE-SEP- chains: of these and the
// endpoint, `ip:port` or `[ip]:port`. In nftables mode the eight characters before a name are the first of its hash: of
// `ns/name/proto/port`, or of that with `__ip/port` for an endpoint (in IPv6 addresses `.` for `:`).
func (h *hasher) sum16(parts ...string) []byte {
	h.in = h.in[:0]
	for _, p := range parts {
		h.in = append(h.in, p...)
	}
	sum := sha256.Sum256(h.in)
	base32.StdEncoding.Encode(h.out[:], sum[:10])
	return h.out[:]
}

// servicePort spells a Service port the way kube-proxy does since 1.19.
func servicePort(namespace, name, port string) string {
	if port == "" {
		return namespace + "/" + name
	}
	return namespace + "/" + name + ":" + port
}

// SplitServicePort takes `ns/name[:port]` apart. A trailing colon (1.18 and older) means an unnamed port.
func SplitServicePort(s string) (namespace, name, port string) {
	namespace, name, _ = strings.Cut(s, "/")
	name, port, _ = strings.Cut(name, ":")
	return namespace, name, port
}
