package kube

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/assert"
)

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: " +
		"https://h}}]\n" +
		"users: [{name: u, user: {token: t}}]\n"))
	dir := f.TempDir()
	f.Fuzz(func(_ *testing.T, text []byte) {
		var k kubeconfig
		if yaml.Unmarshal(text, &k) == nil {
			_, _ = k.client(dir+"/config", nil)
		}
	})
}

func FuzzReason(f *testing.F) {
	f.Add("sysctl.net.ipv4.ip_forward")
	f.Fuzz(func(t *testing.T, name string) {
		const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		r := Reason(name)
		assert.True(t, len(r) <= 128 && strings.Trim(r, letters) == "", "%q gives %q", name, r)
	})
}
