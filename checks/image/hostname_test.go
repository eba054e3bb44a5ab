package image_test

import (
	"maps"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
)

const (
	debianKeygen = "[Unit]\nConditionFirstBoot=yes\n[Service]\nType=oneshot\nExecStart=ssh-keygen -A\n" // openssh-server of Debian 13
	fedoraTarget = "[Unit]\nWants=sshd-keygen@rsa.service\nWants=sshd-keygen@ed25519.service\n"
	fedoraKeygen = "[Unit]\nConditionFileNotEmpty=|!/etc/ssh/ssh_host_%i_key\n[Service]\nType=oneshot\nExecStart=/usr/libexec/openssh/sshd-keygen %i\n"
)

// TestHostname: a name of one machine is a warning: a program may replace it at boot.
func TestHostname(t *testing.T) {
	for _, c := range []struct {
		name, want string
		files      map[string]string
	}{
		{"", "pass", nil}, {"localhost\n", "pass", nil}, {"localhost.localdomain\n", "pass", nil},
		{"mydistro\n", "pass", map[string]string{"/etc/os-release": "ID=mydistro\n"}}, {"node-????\n", "pass", nil},
		{"builder-7.example\n", "warn", nil}, {"ip-10-0-3-7\n", "warn", nil},
	} {
		tree := map[string]string{"/etc/hostname": c.name}
		maps.Copy(tree, c.files)
		r := checkstest.On(t.Context(), t, checkstest.Tree(t, tree), checks.Image, "image.identity", "")
		assert.True(t, r.Verdict.String() == c.want, "%q is %s, want %s", c.name, checkstest.Text(r), c.want)
	}
}
