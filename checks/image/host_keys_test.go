package image_test

import (
	"maps"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
)

const (
	debianKeygen = "[Unit]\nConditionFirstBoot=yes\n[Service]\nType=oneshot\nExecStart=ssh-keygen -A\n" // openssh-server of Debian 13
	fedoraTarget = "[Unit]\nWants=sshd-keygen@rsa.service\nWants=sshd-keygen@ed25519.service\n"
	fedoraKeygen = "[Unit]\nConditionFileNotEmpty=|!/etc/ssh/ssh_host_%i_key\n[Service]\nType=oneshot\nExecStart=/usr/libexec/openssh/sshd-keygen %i\n"
)

// TestHostKeyMakers: an image with sshd and without host keys needs a maker of host keys.
func TestHostKeyMakers(t *testing.T) {
	const wants, units = "/etc/systemd/system/multi-user.target.wants/", "/usr/lib/systemd/system/"
	ssh := map[string]string{units + "ssh.service": sshUnit, wants + "ssh.service": "-> " + units + "ssh.service", "/etc/machine-id": ""}
	for _, c := range []struct {
		what, without string // the reason why sshd will not start, "" if it does
		files         map[string]string
	}{
		{"nothing", "nothing makes them", nil},
		{"cloud-init", "", map[string]string{"/usr/bin/cloud-init": "#!/usr/bin/python3\n"}},
		{"cloud-init, disabled", "nothing makes them",
			map[string]string{"/usr/bin/cloud-init": "#!/usr/bin/python3\n", "/etc/cloud/cloud-init.disabled": ""}},
		{"cloud-init, masked", "nothing makes them",
			map[string]string{"/usr/bin/cloud-init": "#!/usr/bin/python3\n", "/etc/systemd/system/cloud-init.target": "-> /dev/null"}},
		{"ssh-keygen in a drop-in", "", map[string]string{
			"/etc/systemd/system/ssh.service.d/keygen.conf": "[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\n"}},
		{"ssh-keygen in a drop-in, after sshd -t", "nothing makes them", map[string]string{
			"/etc/systemd/system/ssh.service.d/keygen.conf": "[Service]\nExecStartPre=/usr/bin/ssh-keygen -A\n"}},
		{"a unit of its own", "", map[string]string{
			"/etc/systemd/system/keys.service": "[Unit]\nBefore=ssh.service\n[Service]\nType=oneshot\nExecStart=/usr/bin/ssh-keygen -A\n",
			wants + "keys.service":             "-> ../keys.service"}},
		{"a unit that is not enabled", "nothing makes them", map[string]string{
			"/etc/systemd/system/keys.service": "[Service]\nType=oneshot\nExecStart=/usr/bin/ssh-keygen -A\n"}},
		{"a script", "", map[string]string{
			"/etc/systemd/system/first.service": "[Service]\nType=oneshot\nExecStart=/usr/local/sbin/first-boot\n", wants + "first.service": "-> ../first.service",
			"/usr/local/sbin/first-boot": "#!/bin/sh\ndpkg-reconfigure openssh-server\n"}},
		{"Fedora", "", map[string]string{
			units + "sshd.service": "[Unit]\nWants=sshd-keygen.target\n[Service]\nExecStart=/usr/sbin/sshd -D\n", wants + "sshd.service": "-> " + units + "sshd.service",
			units + "sshd-keygen.target": fedoraTarget, units + "sshd-keygen@.service": fedoraKeygen}},
		{"Debian 13, at an ordinary boot",
			"sshd-keygen.service, which makes them, runs only at a first boot: an empty /etc/machine-id makes the boot an ordinary one",
			map[string]string{units + "sshd-keygen.service": debianKeygen,
				"/etc/systemd/system/ssh.service.wants/sshd-keygen.service": "-> " + units + "sshd-keygen.service"}},
		{"Debian 13, at a first boot", "", map[string]string{units + "sshd-keygen.service": debianKeygen, "/etc/machine-id": "uninitialized\n",
			"/etc/systemd/system/ssh.service.wants/sshd-keygen.service": "-> " + units + "sshd-keygen.service"}},
		{"SUSE", "", map[string]string{"/etc/systemd/system/ssh.service.d/a.conf": "[Service]\nExecStartPre=\nExecStartPre=/usr/sbin/sshd-gen-keys-start\n"}},
		{"Google's agent", "", map[string]string{wants + "google-guest-agent.service": "-> " + units + "google-guest-agent.service"}},
		{"sshd must not run", "", map[string]string{"/etc/ssh/sshd_not_to_be_run": ""}},
	} {
		t.Run(c.what, func(t *testing.T) {
			tree := maps.Clone(ssh)
			maps.Copy(tree, c.files)
			h := checkstest.Tree(t, tree)
			text := checkstest.Text(checkstest.On(t.Context(), t, h, checks.Image, "image.identity", ""))
			want := "pass\n"
			if c.without != "" {
				want = "warn\nwant: no data that must be unique to a machine\ngot: sshd will not start: no host keys and " + c.without + "\n"
			}
			if !strings.HasPrefix(text, want) {
				t.Errorf("%s\nwant %s", text, want)
			}
			if c.without != "" && !strings.Contains(text, "/etc/systemd/system/$u.d/keygen.conf; done`") {
				t.Errorf("the remedy adds no maker:\n%s", text)
			}
			tree["/etc/ssh/ssh_host_rsa_key"] = "K"
			text = checkstest.Text(checkstest.On(t.Context(), t, checkstest.Tree(t, tree), checks.Image, "image.identity", ""))
			if !strings.HasPrefix(text, "fail\n") || strings.Contains(text, "keygen.conf") != (c.without != "") {
				t.Errorf("with keys, the remedy must add a maker if there is none:\n%s", text)
			}
		})
	}
}

// TestHostname: a name of one machine is a fault, unless a program replaces it at boot.
func TestHostname(t *testing.T) {
	cloudInit := map[string]string{"/usr/bin/cloud-init": "#!/usr/bin/python3\n"}
	for _, c := range []struct {
		name, want string
		files      map[string]string
	}{
		{"", "pass", nil}, {"localhost\n", "pass", nil}, {"localhost.localdomain\n", "pass", nil}, {"debian\n", "pass", nil},
		{"mydistro\n", "pass", map[string]string{"/etc/os-release": "ID=mydistro\n"}}, {"node-????\n", "pass", nil},
		{"builder-7.example\n", "fail", nil}, {"ip-10-0-3-7\n", "fail", nil},
		{"builder-7\n", "warn", cloudInit},
		{"builder-7\n", "fail", map[string]string{"/usr/bin/cloud-init": "#!/usr/bin/python3\n", "/etc/cloud/cloud.cfg": "preserve_hostname: true\n"}},
		{"builder-7\n", "warn", map[string]string{"/etc/systemd/system/multi-user.target.wants/google-guest-agent.service": "-> /x"}},
	} {
		tree := map[string]string{"/etc/hostname": c.name}
		maps.Copy(tree, c.files)
		r := checkstest.On(t.Context(), t, checkstest.Tree(t, tree), checks.Image, "image.identity", "")
		if r.Verdict.String() != c.want {
			t.Errorf("%q is %s, want %s", c.name, checkstest.Text(r), c.want)
		}
	}
}
