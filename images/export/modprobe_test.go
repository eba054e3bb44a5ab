package export

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

// TestModprobe: options and modules that must not load, in the form of each target that has one.
func TestModprobe(t *testing.T) {
	in := loadInput(t, `
module "nf_conntrack" { options = { hashsize = 65536 } }
module "sctp" { absent = true }`, Delivery{})
	files := writeFormat(t, "files", in)
	text := map[string]string{}
	for _, f := range files.Tree {
		text[f.Path] = string(f.Content)
	}
	if !strings.HasSuffix(text["etc/modprobe.d/99-zz-nodegate.conf"], "\noptions nf_conntrack hashsize=65536\nblacklist sctp\ninstall sctp /bin/false\n") ||
		strings.Contains(text["etc/modules-load.d/nodegate.conf"], "sctp") {
		t.Errorf("files: %q", text)
	}
	in.Delivery = Delivery{Path: "/usr/bin/nodegate"}
	got := string(writeFormat(t, "cloud-init", in).Text)
	assert.True(t, strings.Contains(got, "/etc/modprobe.d/99-zz-nodegate.conf"), "%s", got)
}
