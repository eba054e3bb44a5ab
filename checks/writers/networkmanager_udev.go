package writers

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

// cniLink is a family of links that a CNI creates.
type cniLink struct {
	cni     string        // a word of the CNI's configuration
	pattern string        // in the syntax of NetworkManager's lists
	device  config.Device // an example
}

func cniLinks() []cniLink {
	return []cniLink{
		{"flannel", "flannel*", config.Device{Name: "flannel.1", Kind: "vxlan"}},
		{"calico", "cali*", config.Device{Name: "cali0a1b2c3d4e5", Kind: "veth"}},
		{"calico", "tunl*", config.Device{Name: "tunl0", Kind: "ipip"}},
		{"calico", "vxlan.calico", config.Device{Name: "vxlan.calico", Kind: "vxlan"}},
	}
}

// presentLinks returns the families of links that the CNI of this node creates. configured is false if the node has no CNI yet.
func presentLinks(h *host.Host) (links []cniLink, configured bool, err error) {
	words, err := h.CNIConfig()
	if err != nil {
		return nil, false, err
	}
	if strings.Contains(words, "canal") {
		words += "calico flannel"
	}
	return slices.DeleteFunc(cniLinks(), func(l cniLink) bool { return words != "" && !strings.Contains(words, l.cni) }), words != "", nil
}

// unmanagedByUdev reports whether udev's property NM_UNMANAGED keeps NetworkManager off a link. It
// reads udev's database for a link that exists, otherwise udev's rules.
func unmanagedByUdev(ctx context.Context, h *host.Host, l cniLink) (bool, checks.Evidence, error) {
	name, err := findLink(ctx, h, l.pattern)
	if err != nil {
		return false, checks.Evidence{}, err
	}
	if name != "" {
		said, known, err := udevProperty(h, name, "NM_UNMANAGED")
		if err != nil {
			return false, checks.Evidence{}, err
		}
		if known {
			return said.Text == "NM_UNMANAGED=1" || said.Text == "NM_UNMANAGED=true", said, nil
		}
	}
	by, unmanaged, doubt, err := config.UdevUnmanaged(h.Files, l.device)
	if err != nil || !unmanaged && doubt == nil {
		return false, checks.Evidence{}, err
	}
	if doubt != nil {
		return false, checks.Evidence{}, errors.New(doubt[0].At() + ": could not determine whether this rule matches " + l.pattern)
	}
	return true, checks.Seen(by.At(), "NM_UNMANAGED=1 for "+l.pattern), nil
}

// findLink returns a link of the running machine that the pattern matches, or "".
func findLink(ctx context.Context, h *host.Host, pattern string) (string, error) {
	if !h.Live() {
		return "", nil
	}
	links, err := h.Links.List(ctx)
	if err != nil {
		return "", err
	}
	for _, l := range links {
		if config.Unmanaged([]string{"interface-name:" + pattern}, l.Name) {
			return l.Name, nil
		}
	}
	return "", nil
}

// udevProperty returns a property of a link from udev's database. known reports whether the
// database has the link.
func udevProperty(h *host.Host, link, property string) (said checks.Evidence, known bool, err error) {
	index, err := h.Text("/sys/class/net/" + link + "/ifindex")
	if errors.Is(err, fs.ErrNotExist) {
		return checks.Evidence{}, false, nil // the link is gone
	}
	if err != nil {
		return checks.Evidence{}, false, err
	}
	file := "/run/udev/data/n" + index
	text, found, err := h.ReadIfAny(file)
	if err != nil || !found {
		return checks.Evidence{}, false, err
	}
	for line := range strings.Lines(string(text)) {
		if p, is := strings.CutPrefix(strings.TrimSpace(line), "E:"); is && strings.HasPrefix(p, property+"=") {
			return checks.Seen(file, p), true, nil
		}
	}
	return checks.Seen(file, "no "+property), true, nil
}
