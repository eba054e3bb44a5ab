package export

import (
	"strings"
	"testing"

	"nodegate/units"
)

// TestFileNames: a file name with a line feed is refused, because comments contain it.
func TestFileNames(t *testing.T) {
	in := loadInput(t, testPolicy, Delivery{})
	in.Policy.Files = []string{"a.hcl\nspec: {}\n#.hcl"}
	for _, f := range Formats() {
		in.Delivery = Delivery{}
		if f.Needs == AnImage {
			in.Delivery = deliveries()["image"]
		}
		if _, err := f.Write(in); err == nil || !strings.Contains(err.Error(), `"a.hcl\nspec: {}\n#.hcl" contains a control character`) {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

// TestPath: every unit, the gate and the fetch script use the path from --path and no other.
func TestPath(t *testing.T) {
	for name, d := range deliveries() {
		d.Path = "/opt/bin/nodegate"
		for _, format := range []string{"kops", "cloud-init", "ignition", "kubeadm"} {
			in := loadInput(t, testPolicy, d)
			if text := string(writeFormat(t, format, in).Text); strings.Contains(text, units.Binary) || format != "ignition" &&
				!strings.Contains(text, d.Path) {
				t.Errorf("%s, %s: uses a path other than %s", format, name, d.Path)
			}
		}
	}
	for _, at := range []string{"nodegate", "/opt/../nodegate", "/opt/a b", "/", "/opt/x\n"} {
		if _, err := ParseDelivery("", "", "", at); err == nil {
			t.Errorf("--path %q is accepted", at)
		}
	}
}
