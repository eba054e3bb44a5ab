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

// Delivery is how the binary comes to the node. The zero value: it is in the
// machine's image already.
type Delivery struct {
	URL    string // fetched from there,
	SHA256 string // and only run with this sum, in hex
	Image  string // or copied out of this container image: REF@sha256:DIGEST
	Path   string // where it is on the node, or is put; "" is units.Binary
}

// path is where the binary is on the node.
func (d Delivery) path() string { return cmp.Or(d.Path, units.Binary) }

// extensionFile is where a system extension lies on the node: by the name that its release file has.
const extensionFile = "/var/lib/extensions/nodegate.raw"

// isExtension reports whether the URL is that of a system extension, as `make dist` names them.
func (d Delivery) isExtension() bool { return strings.HasSuffix(d.URL, ".raw") }

// ParseDelivery reads the flags --binary, --sha256, --image and --path.
func ParseDelivery(binary, sum, image, at string) (Delivery, error) {
	d, err := parseOrigin(binary, sum, image)
	d.Path = at
	if err == nil && at != "" && (path.Clean(at) != at || !regexp.MustCompile(`^(/[A-Za-z0-9._+-]+)+$`).MatchString(at)) {
		err = fmt.Errorf("--path is where nodegate is on the node, like %s or /opt/bin/nodegate; %q is not", units.PackagedBinary, at)
	}
	return d, err
}

func parseOrigin(binary, sum, image string) (Delivery, error) {
	switch {
	case image != "" && (binary != "" || sum != ""):
		return Delivery{}, fmt.Errorf("--image brings the binary, its digest is its sum: leave --binary and --sha256 away")
	case image != "":
		return Delivery{Image: image}, checkImage(image)
	case binary == "" || binary == "baked":
		if sum != "" {
			return Delivery{}, fmt.Errorf("--sha256 goes with --binary URL")
		}
		return Delivery{}, nil
	}
	u, err := url.Parse(binary)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return Delivery{}, fmt.Errorf("--binary is \"baked\", or the http or https URL that nodes fetch nodegate from; %q is neither",
			binary)
	}
	if u.User != nil {
		return Delivery{}, fmt.Errorf("--binary: the URL would put its password onto every node; serve the binary without one, its sum " +
			"protects it")
	}
	if strings.ContainsFunc(binary, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("'\"\\`", r) }) {
		return Delivery{}, fmt.Errorf("--binary %q: percent-encode white space, quotes and what is not ASCII", binary)
	}
	if sum == "" {
		return Delivery{}, fmt.Errorf("--binary URL needs --sha256 SUM, as `sha256sum nodegate` prints it: nothing else is run")
	}
	sum = strings.ToLower(sum)
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return Delivery{}, fmt.Errorf("--sha256 is 64 hexadecimal digits, as `sha256sum nodegate` prints them; %q is not", sum)
	}
	return Delivery{URL: binary, SHA256: sum}, nil
}

// checkImage wants what ctr wants: the full name, registry first, and a digest,
// because a tag can be moved.
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
		return fmt.Errorf("--image %q: a name is lower-case letters, digits and any of ._-/: before the digest", image)
	}
	return nil
}
