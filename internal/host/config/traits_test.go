package config

import (
	"slices"
	"testing"
)

// TestTraits: what a file holds, outside of comments and without placeholders.
func TestTraits(t *testing.T) {
	for _, c := range []struct {
		text string
		want []Trait
	}{
		{"", nil},
		{"-----BEGIN EC PRIVATE KEY-----\nA\n", []Trait{PrivateKey}},
		{"-----BEGIN OPENSSH PRIVATE KEY-----\nA\n", []Trait{PrivateKey}},
		{"-----BEGIN ENCRYPTED PRIVATE KEY-----\nA\n", []Trait{PrivateKey}},
		{"-----BEGIN PGP PRIVATE KEY BLOCK-----\nA\n", []Trait{PrivateKey}},
		{"-----BEGIN CERTIFICATE-----\nA\n-----BEGIN PUBLIC KEY-----\n", nil},
		{"[Interface]\nPrivateKey = aGVsbG8=\n", []Trait{PrivateKey}},
		{"users:\n- user:\n    client-key-data: LS0t\n", []Trait{PrivateKey}},
		{"users:\n- user:\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n    tokenFile: /etc/token\n", nil},
		{"users:\n- user:\n    exec:\n      command: aws\n      args: [eks, get-token]\n", nil},
		{`{"users":[{"user":{"token":"abcdef.0123456789abcdef"}}]}`, []Trait{Token}},
		{"token: ''\n", nil},
		{"//registry.npmjs.org/:_authToken=abc\n", []Trait{Token}},
		{"//registry.npmjs.org/:_authToken=${NPM_TOKEN}\nregistry=https://x\n", nil},
		{"token: \"\"\nagent-token: {{ token }}\n", nil},
		{"K3S_TOKEN=${TOKEN}\n", nil},
		{"export K3S_TOKEN='abc'\n", []Trait{Token}},
		{"auth_token: /var/lib/teleport/token\n", nil},
		{"kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef\n", []Trait{Token}},
		{"tls-token-file: x\ntoken-ttl: 24h\n", nil},
		{"#token: abc\n  # token: abc\n; token = abc\n", nil},
		{`{"auths":{"r.example":{"auth":"dTpw"}}}`, []Trait{Password}},
		{`{"auths":{},"credHelpers":{"r.example":"ecr-login"}}`, nil},
		{"configs:\n  r.example:\n    auth:\n      username: u\n      password: p\n", []Trait{Password}},
		{"[default]\naws_secret_access_key = abc\n", []Trait{Password}},
		{"# ssh-rsa AAAA\n", nil},
		{"restrict,command=\"x\" ssh-ed25519 AAAA admin\n", []Trait{PublicKey}},
		{"GenerateName=yes\n", nil},
		{"InitiatorName=iqn.1993-08.org.debian:01:abc\n", []Trait{InitiatorName}},
	} {
		if got := Traits([]byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%q has %q, want %q", c.text, got, c.want)
		}
	}
}
