package export

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"nodegate/units"
)

// Delivery describes how the binary reaches the node. The zero value means that the machine image
// already contains it.
type Delivery struct {
	URL    string // the node fetches the binary from here
	SHA256 string // checksum in hex; a binary with another one is never run
	Image  string // container image to copy the binary from: REF@sha256:DIGEST
	Path   string // path of the binary on the node; "" is units.Binary
}

// path returns the path of the binary on the node.
func (d Delivery) path() string { return cmp.Or(d.Path, units.Binary) }

// extensionFile is the path of a system extension on the node. Its name must match its release file.
const extensionFile = "/var/lib/extensions/nodegate.raw"

// isExtension reports whether the URL names a system extension as `make dist` does.
func (d Delivery) isExtension() bool { return strings.HasSuffix(d.URL, ".raw") }

// ParseDelivery reads the flags --binary, --sha256, --image and --path.
func ParseDelivery(binary, sum, image, at string) (Delivery, error) {
	d, err := parseOrigin(binary, sum, image)
	d.Path = at
	if err == nil && at != "" && (path.Clean(at) != at || !regexp.MustCompile(`^(/[A-Za-z0-9._+-]+)+$`).MatchString(at)) {
		err = fmt.Errorf("--path must be an absolute path such as %s or /opt/bin/nodegate, not %q", units.PackagedBinary, at)
	}
	return d, err
}

func parseOrigin(binary, sum, image string) (Delivery, error) {
	switch {
	case image != "" && (binary != "" || sum != ""):
		return Delivery{}, fmt.Errorf("--image delivers the binary, and its digest protects it: remove --binary and --sha256")
	case image != "":
		return Delivery{Image: image}, checkImage(image)
	case binary == "" || binary == "baked":
		if sum != "" {
			return Delivery{}, fmt.Errorf("--sha256 needs --binary URL")
		}
		return Delivery{}, nil
	}
	u, err := url.Parse(binary)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return Delivery{}, fmt.Errorf("--binary must be \"baked\" or an http or https URL that nodes fetch nodegate from, not %q",
			binary)
	}
	if u.User != nil {
		return Delivery{}, fmt.Errorf("--binary: the URL would copy its password to every node; serve the binary without a password, its " +
			"checksum protects it")
	}
	if strings.ContainsFunc(binary, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("'\"\\`", r) }) {
		return Delivery{}, fmt.Errorf("--binary %q: percent-encode white space, quotes and non-ASCII characters", binary)
	}
	if sum == "" {
		return Delivery{}, fmt.Errorf("--binary URL needs --sha256 SUM, as printed by `sha256sum nodegate`: nodes run no other binary")
	}
	sum = strings.ToLower(sum)
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return Delivery{}, fmt.Errorf("--sha256 must be 64 hexadecimal digits, as printed by `sha256sum nodegate`, not %q", sum)
	}
	return Delivery{URL: binary, SHA256: sum}, nil
}

// checkImage requires the full name that ctr needs, registry first, and a digest, because a tag can
// be moved.
func checkImage(image string) error {
	name, digest, pinned := strings.Cut(image, "@")
	sum, sha := strings.CutPrefix(digest, "sha256:")
	if raw, err := hex.DecodeString(sum); !pinned || !sha || err != nil || len(raw) != 32 {
		return fmt.Errorf("--image %q: pin it by digest, NAME@sha256:64 hexadecimal digits; a tag can be moved", image)
	}
	registry, rest, _ := strings.Cut(name, "/")
	if rest == "" || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		return fmt.Errorf("--image %q: write the full name, registry first, for example ghcr.io/%s", image, image)
	}
	if strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/:", r)
	}) {
		return fmt.Errorf("--image %q: before the digest only lower-case letters, digits and the characters ._-/: are allowed", image)
	}
	return nil
}
