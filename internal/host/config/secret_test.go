package config

import (
	"strings"
	"testing"
)

func TestWithoutSecrets(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	for _, c := range []struct{ what, text, want string }{
		{"a certificate with its key", certificate + "-----BEGIN EC PRIVATE KEY-----\nS3cret\n-----END EC PRIVATE KEY-----\n", certificate},
		{"the key first", "-----BEGIN PRIVATE KEY-----\r\nS3cret\r\n-----END PRIVATE KEY-----\r\n" + certificate, certificate},
		{"a truncated key", certificate + "-----BEGIN RSA PRIVATE KEY-----\nS3cret", certificate},
		{"a kubeconfig", "kind: Config\nusers:\n- name: n\n  user:\n    client-certificate-data: QUJD\n    client-key-data: >-\n      S3cret\n      S3cret\n",
			"client-certificate-data: QUJD"},
		{"a bootstrap kubeconfig", `{"users": [{"user": {"token": "S3cret"}, "name": "kubelet"}]}`, "kubelet"},
		{"a program", "users:\n- user:\n    exec:\n      command: aws\n      env: [{name: KEY, value: S3cret}]\n  name: aws\n", "name: aws"},
		{"an unreadable kubeconfig", "users:\n- user: {token: S3cret\n", ""},
		{"the second document", "kind: None\n---\nusers:\n- user: {token: S3cret}\n", "kind: None\n---\nusers:\n"},
		{"a policy", "sysctl \"kernel.dmesg_restrict\" {\n  reason = \"CIS 1.5: other users must not read it (secrets)\"\n}\n", "CIS 1.5: other users"},
		{"anything else", "token: 1 # a comment\n", "token: 1 # a comment\n"},
	} {
		got := string(WithoutSecrets([]byte(c.text)))
		if had, has := HasPrivateKey([]byte(c.text)), HasPrivateKey([]byte(got)); had && !has {
			t.Errorf("%s: no trace of the key is left", c.what)
		}
		if strings.Contains(got, "S3cret") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}

func TestHasPrivateKey(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	for text, want := range map[string]bool{
		"":          false,
		certificate: false,
		certificate + "-----BEGIN EC PRIVATE KEY-----\nMIIB\n-----END EC PRIVATE KEY-----\n":                           true,
		certificate + "-----BEGIN EC PRIVATE KEY-----\nMII":                                                            false,
		string(WithoutSecrets([]byte("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n" + certificate))): true,
	} {
		if got := HasPrivateKey([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
