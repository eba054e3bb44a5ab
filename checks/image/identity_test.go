package image_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
)

func TestIdentity(t *testing.T) {
	checkstest.RunOne(t, "image.identity", checks.Image, []checkstest.Case{
		{What: "clean", Tree: map[string]string{
			"/etc/machine-id": "uninitialized\n", "/var/lib/dbus/machine-id": "-> /etc/machine-id", "/etc/ssh/ssh_config": "Host *\n",
			"/root/.bash_history": "-> /dev/null", "/home/admin/.ssh/authorized_keys": "# none\n", "/home/aquota.user": "q",
			"/home/admin/.zsh_history":      "",
			"/var/log/journal/remote/":      "", // belongs to the package systemd-journal-remote
			"/var/lib/dhcp/dhclient.leases": "", "/var/lib/systemd/catalog": "c",
		}, Want: `
pass
want: no data that must be unique to a machine
got: no data that must be unique to a machine`},
		{What: "a machine that has run", Tree: map[string]string{
			"/etc/machine-id": "6e6f64656761746500000000006e6f64\n", "/var/lib/dbus/machine-id": "6e6f64656761746500000000006e6f64\n",
			"/etc/ssh/ssh_host_rsa_key": "KEY", "/etc/ssh/ssh_host_rsa_key.pub": "ssh-rsa AAAA",
			"/var/lib/dhcp/dhclient.eth0.leases": "lease {}", "/var/lib/NetworkManager/secret_key": "K",
			"/var/lib/cloud/instances/i-1/user-data.txt": "#cloud-config", "/var/lib/systemd/random-seed": "R",
			"/var/lib/systemd/credential.secret":                               "S",
			"/var/log/journal/6e6f64656761746500000000006e6f64/system.journal": "J",
			"/home/a b/.bash_history":                                          "ls", "/root/.aws/credentials": "[default]",
			"/var/lib/kubelet/pki/kubelet-client-current.pem": "PEM",
		}, Want: `
fail
want: no data that must be unique to a machine
got: machine-id, SSH host keys, DHCP leases, random seed, systemd's credential secret, cloud-init's state, journal, credentials, kubelet's certificate
evidence: /etc/machine-id: machine-id
evidence: /var/lib/dbus/machine-id: machine-id
evidence: /etc/ssh/ssh_host_rsa_key: SSH host keys
evidence: /var/lib/dhcp/dhclient.eth0.leases: DHCP leases
evidence: /var/lib/NetworkManager/secret_key: DHCP leases
evidence: /var/lib/systemd/random-seed: random seed
evidence: /var/lib/systemd/credential.secret: systemd's credential secret
evidence: /var/lib/cloud/instances/i-1: cloud-init's state
evidence: /var/log/journal/6e6f64656761746500000000006e6f64: journal
evidence: /root/.aws/credentials: credentials
evidence: /var/lib/kubelet/pki/kubelet-client-current.pem: kubelet's certificate
remedy: run ` + "`truncate -s 0 ROOT/etc/machine-id; rm -rf ROOT/var/lib/dbus/machine-id ROOT/etc/ssh/ssh_host_rsa_key ROOT/var/lib/dhcp/dhclient.eth0.leases ROOT/var/lib/NetworkManager/secret_key ROOT/var/lib/systemd/random-seed ROOT/var/lib/systemd/credential.secret ROOT/var/lib/cloud/instances/i-1 ROOT/var/log/journal/6e6f64656761746500000000006e6f64 ROOT/root/.aws/credentials ROOT/var/lib/kubelet/pki/kubelet-client-current.pem`, and see that cloud-init or an ExecStartPre=/usr/bin/ssh-keygen -A of sshd generates new host keys at boot"},
	})
}

// TestStageAll: stage all omits the check, because a running machine has an identity.
func TestStageAll(t *testing.T) {
	p := checkstest.Load(t, `check "image.identity" {}`)
	for stage, want := range map[checks.Stage]int{checks.Image: 1, checks.All: 0, checks.Run: 0} {
		assert.Equal(t, len(catalog.For(p, stage)), want, "stage %s asks for", stage)
	}
}

// TestIdentityOfANode: the remedy does not invite anyone to remove a running node's keys and state.
func TestIdentityOfANode(t *testing.T) {
	const never = "never do this on a node; only if this machine becomes an image, "
	for active, want := range map[string]string{"active": "kubelet.service runs here: " + never + "stop it and run `", "inactive": never + "run `"} {
		m := checkstest.WithUnit(checkstest.Node(map[string]string{"/etc/krb5.keytab": "KEY"}, nil), "kubelet.service", active, "enabled")
		r := checkstest.On(t.Context(), t, m.Host(), checks.Image, "image.identity", "")
		assert.True(t, strings.HasPrefix(r.State.Remedy, want) && !r.State.Pass, "%s: %s %v", active, checkstest.Text(r), r.Err)
	}
}

// TestAuthorizedKeysStay: they may be the only way in, so a fault's remedy leaves them, and their own says what to consider.
func TestAuthorizedKeysStay(t *testing.T) {
	const keys = "/root/.ssh/authorized_keys"
	tree := map[string]string{keys: "ssh-ed25519 AAAA builder\n"}
	r := checkstest.On(t.Context(), t, checkstest.Tree(t, tree), checks.Image, "image.identity", "")
	if !strings.Contains(r.State.Remedy, keys) || !strings.HasSuffix(r.State.Remedy, "is your only way into the machine") {
		t.Error(r.State.Remedy)
	}
	tree["/root/.netrc"] = "machine a login b password c\n"
	r = checkstest.On(t.Context(), t, checkstest.Tree(t, tree), checks.Image, "image.identity", "")
	if !strings.Contains(r.State.Remedy, "/root/.netrc") || strings.Contains(r.State.Remedy, keys) {
		t.Error(r.State.Remedy)
	}
}
