package config

import (
	"testing"

	"nodegate/internal/assert"
)

func TestHasPrivateKey(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	for text, want := range map[string]bool{
		"":          false,
		certificate: false,
		certificate + "-----BEGIN EC PRIVATE KEY-----\nMIIB\n-----END EC PRIVATE KEY-----\n":                         true,
		certificate + "-----BEGIN EC PRIVATE KEY-----\nMII":                                                          false,
		string(certificates([]byte("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n" + certificate))): true,
	} {
		assert.Equal(t, HasPrivateKey([]byte(text)), want, "%q", text)
	}
}
