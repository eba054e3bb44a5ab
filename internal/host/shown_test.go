package host_test

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestShown: a recording contains neither a text that people write nor a key of the kernel, nor the answers that a check asks for after
// it has read such a text.
func TestShown(t *testing.T) {
	const private, public fs.FileMode = 0o600, 0o644
	for _, c := range []struct {
		name, text string
		mode       fs.FileMode
		instead    string // what the recording contains in place of the text
	}{
		{"/etc/fstab", "//host/share /mnt/b cifs username=S3cret,password=S3cret,credentials=/root/c 0 0\n", public, "does not hold"},
		{"/proc/sys/net/ipv4/tcp_fastopen_key", "S3cret00-12345678-12345678-12345678\n", private, "value left out"},
		{"/proc/sys/net/ipv6/conf/eth0/stable_secret", "2001:db8::5ec:7\n", private, "value left out"},
		{"/proc/sys/fs/protected_hardlinks", "1\n", private, `1\n`},
		{"/proc/sys/kernel/core_pattern", "|/usr/bin/dump --token S3cret S3cret %e\n", public, "does not hold"},
		{"/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n", public, `4096\t131072\t6291456`},
		{"/etc/kubernetes/kubelet.conf", "users:\n- user:\n    token: 5551234\n", private, "does not hold"},
		{"/etc/os-release", "ID=debian\nHOME_URL=https://u:S3cret@x/?S3cret\nVERSION_ID=\"12\"\nLOGO=S3cret", public, `ID=debian\nVERSION_ID=\"12\"`},
		{"/proc/8/cmdline", "/usr/bin/x\x00--password\x00S3cret\x00-pS3cret\x00", public, "does not hold"},
	} {
		m := &hosttest.Machine{Files: map[string]string{c.name: c.text}, Modes: map[string]fs.FileMode{c.name: c.mode}}
		recording, s := host.Record(m.Host())
		read := func(h *host.Host) (int, error) {
			text, err := h.Files.ReadFile(c.name)
			assert.True(t, err != nil || string(text) == c.text || c.instead == "value left out" || c.name == "/etc/os-release", "a check reads of %s: %s", c.name, text)
			_, _ = h.Files.Exists("/x/" + string(text))
			return len(text), err
		}
		size, err := host.Conclude(recording, "size", "", read)
		text, jsonErr := json.Marshal(s)
		assert.True(t, err == nil && jsonErr == nil && !secret().Match(text) && strings.Contains(string(text), c.instead),
			"%v, %v: a recording of %s holds %s", err, jsonErr, c.name, text)
		again, err := host.Conclude(host.Replay(s), "size", "", func(h *host.Host) (int, error) { return read(h) })
		assert.True(t, err == nil && again == size, "a replay of %s concludes %d, %v, want %d", c.name, again, err, size)
	}
}

func secret() *regexp.Regexp { return regexp.MustCompile("S3cret|5551234|5ec:7") }

// TestSysfsLinks: an attribute is not read or written through a link of sysfs, except a device's name in its class.
func TestSysfsLinks(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{
		"/sys/devices/system/cpu/cpu0/driver":                              "-> ../../../../bus/cpu/drivers/processor",
		"/sys/devices/system/cpu/cpu0/driver/x":                            "0\n",
		"/sys/devices/system/cpu/cpu0/cpufreq":                             "-> ../cpufreq/policy0",
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":            "powersave\n",
		"/sys/class/net/eth0":                                              "-> ../../devices/virtual/net/eth0",
		"/sys/class/net/eth0/threaded":                                     "0\n",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource": "-> /proc/sysrq-trigger",
	}}
	h := m.Host()
	for key, fine := range map[string]bool{
		"/sys/devices/system/cpu/cpu0/driver/x":                            false,
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":            true,
		"/sys/class/net/eth0/threaded":                                     true,
		"/sys/devices/system/clocksource/clocksource0/current_clocksource": false,
	} {
		_, readErr := h.ReadSysctl(key)
		err := h.WriteSysctl(key, "1")
		assert.True(t, (err == nil) == fine && (readErr == nil) == fine, "%s: %v, %v", key, readErr, err)
	}
}
