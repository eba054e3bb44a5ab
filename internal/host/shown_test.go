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
	"nodegate/internal/require"
)

// TestShown: checks see no value of a file that only root may read, except of a shape without a place for a secret, and a recording
// holds no more of a file that every user may read.
func TestShown(t *testing.T) {
	const private, public fs.FileMode = 0o600, 0o644
	for _, c := range []struct {
		name, text string
		mode       fs.FileMode
		shows      string // what remains
	}{
		{"/etc/fstab", "//host/share /mnt/b cifs username=S3cret,password=S3cret,credentials=/root/c 0 0\nUUID=1-2 / ext4 rw,noexec 0 1\n", private,
			"/ ext4 rw,noexec 0 1"},
		{"/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--register-with-token=S3cret --node-ip=10.0.0.4\"\n", private, "--node-ip=10.0.0.4"},
		{"/etc/default/kubelet", "PASSWORD=31415926\n", private, "PASSWORD=0"},
		{"/proc/sys/net/ipv4/tcp_fastopen_key", "S3cret00-12345678-12345678-12345678\n", private, "left-out"},
		{"/proc/sys/net/ipv6/conf/eth0/stable_secret", "2001:db8::5ec7:S3cret\n", private, "left-out"},
		{"/proc/sys/fs/protected_hardlinks", "1\n", private, "1"},
		{"/proc/sys/kernel/core_pattern", "|/usr/bin/dump --token S3cret S3cret %e\n", public, "|/usr/bin/dump"},
		{"/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n", public, "4096\t131072\t6291456"},
		{"/etc/systemd/system/kubelet.service", "[Unit]\nConditionEnvironment=TOKEN=S3cret\nAfter=containerd.service\n[Service]\n" +
			"ExecStart=/usr/bin/kubelet --token S3cret --config=/etc/k.yaml\n", public, "--config=/etc/k.yaml"},
		{"/etc/kubernetes/kubelet.conf", "clusters:\n- cluster:\n    server: https://host:6443/x?token=S3cret\nusers:\n- user:\n    token: 5551234\n    exec:\n" +
			"      env:\n      - name: KEY\n        value: S3cret\n", private, "server: https://left-out"},
		{"/etc/sysctl.d/1.conf", "kernel.core_pattern = |/bin/x S3cret\nnet.ipv4.ip_forward = 1\n", public, "net.ipv4.ip_forward = 1"},
		{"/etc/sysctl.d/2.conf", "net.ipv6.conf.eth0.stable_secret = 2001:db8::5ec:7\nvm.swappiness = 1\n", private, "vm.swappiness = 1"},
		{"/etc/os-release", "ID=debian\nHOME_URL=https://u:S3cret@x/?S3cret\nVERSION_ID=\"12\"\nLOGO=S3cret", public, "ID=debian\nVERSION_ID=\"12\""},
		{"/etc/modprobe.d/1.conf", "options wifi key=S3cret\nblacklist br_netfilter\n", public, "blacklist br_netfilter"},
		{"/etc/systemd/network/1.network", "[Match]\nName=eth* cali*\n[WireGuard]\nPrivateKey=S3cret=\n", private, "Name=eth* cali*"},
		{"/proc/8/cmdline", "/usr/bin/x\x00--password\x00S3cret\x00-pS3cret\x00", public, "/usr/bin/x"},
	} {
		m := &hosttest.Machine{Files: map[string]string{c.name: c.text}, Modes: map[string]fs.FileMode{c.name: c.mode}}
		h := m.Host()
		live, err := h.Files.ReadFile(c.name)
		require.NoError(t, err)
		assert.True(t, !secret().Match(live) || c.mode != private, "checks see of %s: %s", c.name, live)
		recording, s := host.Record(h)
		shown, err := recording.Files.ReadFile(c.name)
		text, jsonErr := json.Marshal(s)
		assert.True(t, err == nil && jsonErr == nil && !secret().Match(text) && strings.Contains(string(shown), c.shows),
			"%v, %v: a recording of %s holds %s", err, jsonErr, c.name, shown)
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
