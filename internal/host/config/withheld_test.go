package config

import (
	"testing"

	"nodegate/internal/assert"
)

// TestWithheld: a word of a private file does not leave, whatever a parser made of it; the words of a sentence do.
func TestWithheld(t *testing.T) {
	var w Withheld
	assert.Equal(t, w.Plain("reads S3cret", ""), "reads S3cret", "without private files")
	w.Add("/etc/public.conf", "")
	w.Add("/etc/private.conf", "# kubelet waits until the swordfish swims\ntoken = S3cret/x1\nname=caf\\x65teria %53wordfishes\nключ: пароль\nlist: eth0 12345678 systemd foo_bar\n")
	for text, want := range map[string]string{
		"kubelet waits until systemd runs":              "kubelet waits until systemd runs",
		"reads S3cret/x1, then x1":                      "reads (value left out), then (value left out)",
		"https://u:s3cret@h/x":                          "(value left out)",
		"open /etc/kubernetes/S3cret: no such file":     "open (value left out): no such file",
		"/etc/private.conf:3 and /tree/etc/public.conf": "/etc/private.conf:3 and /tree/etc/public.conf",
		"/etc/swordfish/a.conf":                         "(value left out)",
		"cafeteria Swordfishes":                         "(value left out)",
		"link eth0 has 12345678":                        "link eth0 has 12345678",
		"pin=12345678, mode=x":                          "pin=(value left out), mode=x",
		"sysctl -w fs.foo_bar.max=12":                   "sysctl -w fs.foo_bar.max=12",
		"x --token 12345678 --v 2":                      "x --token (value left out) --v 2",
		"password=systemd":                              "password=(value left out)",
		"open /x/aswordfishb, or /x/a":                  "open (value left out), or /x/a",
		"пароль":                                        "(value left out)",
		"foo_bar of foo_bar_baz":                        "(value left out) of (value left out)",
	} {
		assert.Equal(t, w.Plain(text, ""), want, "%s", text)
	}
	assert.Equal(t, w.Plain("module foo_bar", "module.foo_bar"), "module foo_bar", "a known name")
	assert.Equal(t, string(w.Copy("/etc/private.conf", []byte("X-A=S3cret\n"))), "X-A=left-out\n", "a copy")
	assert.Equal(t, string(w.Copy("/etc/public.conf", []byte("X-A=S3cret\n"))), "X-A=S3cret\n", "a public copy")
	w.Add("/etc/private.conf", "nothing\n")
	assert.Equal(t, w.Plain("reads S3cret", ""), "reads S3cret", "a file that changed")
}
