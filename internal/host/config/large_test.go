package config_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"nodegate/internal/host/config"
)

// TestLarge: a file in an untrusted tree takes neither minutes nor gigabytes, whatever its content.
func TestLarge(t *testing.T) {
	var keys strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&keys, "a%d = 1\n", i)
	}
	huge := tree{
		"/etc/sysctl.d/a.conf":       strings.Repeat("x\n", 4<<20),
		"/etc/systemd/networkd.conf": strings.Repeat("x\n", 4<<20),
		"/etc/udev/rules.d/a.rules":  strings.Repeat("x\n", 1<<20), "/etc/udev/rules.d/b.rules": strings.Repeat("x\n", 1<<20+1),
	}
	kubelet := tree{"/var/lib/kubelet/config.yaml": "a: [" + strings.Repeat("[],", 4<<20) + "]"}
	for _, c := range []struct {
		what, refused string
		read          func() error
	}{
		{"half a MiB of joined lines", "", func() error {
			_, err := config.ParseINI("f", []byte("[S]\na="+strings.Repeat("\\\n", 1<<18)))
			return err
		}},
		{"100,000 parameters", "", func() error {
			_, err := config.SystemdSysctls(tree{"/etc/sysctl.d/a.conf": keys.String()})
			return err
		}},
		{"8 MiB without parameters", "/etc/sysctl.d/a.conf is larger than 4194304 bytes", func() error {
			_, err := config.SystemdSysctls(huge)
			return err
		}},
		{"8 MiB of networkd.conf", "/etc/systemd/networkd.conf is larger than 4194304 bytes", func() error {
			_, err := config.WithDropIns(huge, []string{"/etc/systemd"}, "networkd.conf")
			return err
		}},
		{"100,000 options of TuneD", "/etc/tuned/big/tuned.conf is larger than 65536 bytes", func() error {
			_, err := config.TunedSysctls(tree{"/etc/tuned/active_profile": "big", "/etc/tuned/big/tuned.conf": "[sysctl]\n" + keys.String()})
			return err
		}},
		{"12 MiB of kubelet's configuration", "/var/lib/kubelet/config.yaml is larger than 1048576 bytes", func() error {
			_, err := config.ReadKubelet(kubelet)
			return err
		}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := c.read()
		runtime.ReadMemStats(&after)
		if got := fmt.Sprint(err); c.refused == "" && err != nil || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", c.what, got, c.refused)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 200 {
			t.Errorf("%s took %d MiB", c.what, used)
		}
	}
}
