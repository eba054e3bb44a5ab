package export

import (
	"strings"
	"testing"

	"nodegate/units"
)

// TestFileNames: a policy's name is in comments, which end with their line.
func TestFileNames(t *testing.T) {
	in := input(t, testPolicy, Delivery{})
	in.Policy.Files = []string{"a.hcl\nspec: {}\n#.hcl"}
	for _, f := range Formats() {
		in.Delivery = Delivery{}
		if f.Needs == AnImage {
			in.Delivery = deliveries()["image"]
		}
		if _, err := f.Write(in); err == nil || !strings.Contains(err.Error(), `"a.hcl\nspec: {}\n#.hcl" has a control character`) {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

// TestPath: every unit, the gate and what fetches name the place that was asked for, and no other.
func TestPath(t *testing.T) {
	for name, d := range deliveries() {
		d.Path = "/opt/bin/nodegate"
		for _, format := range []string{"kops", "cloud-init", "ignition", "butane", "kubeadm"} {
			in := input(t, testPolicy, d)
			if text := string(write(t, format, in).Text); strings.Contains(text, units.Binary) || format != "ignition" &&
				!strings.Contains(text, d.Path) {
				t.Errorf("%s, %s: not only %s", format, name, d.Path)
			}
		}
	}
	for _, at := range []string{"nodegate", "/opt/../nodegate", "/opt/a b", "/", "/opt/x\n"} {
		if _, err := ParseDelivery("", "", "", at); err == nil {
			t.Errorf("--path %q is accepted", at)
		}
	}
}
