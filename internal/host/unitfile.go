package host

import (
	"slices"
	"strings"
)

// LacksUnit reports whether systemd would find no file for a unit, and which services
// there look like a kubelet.
func (h *Host) LacksUnit(unit string) (lacks bool, likely []string, err error) {
	lacks = true
	for _, dir := range []string{
		"/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
		"/lib/systemd/system", "/run/systemd/generator.late",
	} {
		names, err := h.ReadDirIfAny(dir)
		if err != nil {
			return false, nil, err
		}
		for _, name := range names {
			if name == unit || name == template(unit) {
				lacks = false
			}
			if likeKubelet(name) && !slices.Contains(likely, name) {
				likely = append(likely, name)
			}
		}
	}
	return lacks, likely, nil
}

// template returns the template of a unit that is an instance of one: a@b.service is
// one of a@.service.
func template(unit string) string {
	before, instance, ok := strings.Cut(unit, "@")
	if dot := strings.LastIndexByte(instance, '.'); ok && dot >= 0 {
		return before + "@" + instance[dot:]
	}
	return unit
}

func likeKubelet(name string) bool {
	base, ok := strings.CutSuffix(name, ".service")
	return ok && (strings.Contains(base, "kubelet") || strings.HasPrefix(base, "k3s") || strings.HasPrefix(base, "rke2-") ||
		strings.HasPrefix(base, "k0s"))
}

// LikeKubelet says which services look like a kubelet.
func LikeKubelet(likely []string) string {
	if len(likely) == 0 {
		return "nothing there looks like a kubelet"
	}
	return "what looks like a kubelet there: " + strings.Join(likely, ", ")
}
