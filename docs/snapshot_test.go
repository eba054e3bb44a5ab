package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestSnapshotWhole: a whole snapshot of a running machine gives a policy that it never saw the results of the machine, and holds no key.
func TestSnapshotWhole(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	hosttest.NeedProgram(t, "ip")
	c := newContractor(t, "")
	const key = "0badc0de-11111111-22222222-33333333"
	for name, text := range map[string]string{
		"old.hcl": `sysctl "kernel.pid_max" { min = 1 }`,
		"new.hcl": `
			sysctl "net.core.somaxconn" { value = 4097 }
			sysctl "net.ipv4.ip_forward" { value = 0 }
			sysctl "net.bridge.bridge-nf-call-arptables" { value = 1 }
			sysctl "net.ipv4.conf.*.rp_filter" { value = 2 }
			sysctl "vm.swappiness" {
			  when  = node.cpus > 0 && version_at_least(kernel.version, "4.0") && cloud.provider != "aws"
			  max  = 200
			}
			sysfs "kernel/mm/transparent_hugepage/enabled" { value = "madvise" }
			sysfs "kernel/mm/ksm/missing" { value = 1 }
			sysfs "devices/system/cpu/cpu*/cpufreq/scaling_governor" { value = "performance" }
			sysfs "class/net/*/queues/rx-*/rps_cpus" { value = "0" }
			module "overlay" {}
			module "dccp" { absent = true }
			module "nf_conntrack" { options = { hashsize = 4096 } }
			link "pods" {
			  match { kind = "veth" }
			  mtu      = 1400
			  offload  = { tx-checksum-ip-generic = false }
			  channels = { rx = 1 }
			  ring     = { rx = 512 }
			  coalesce = { rx-usecs = 8 }
			  sysctl   = { "net.ipv6.conf.*.accept_ra" = 0 }
			}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644))
	}
	out, code := c.scratch(`mount -t sysfs sysfs /sys; ip link add pod0 type veth peer name pod1; ip link set pod0 up
		echo ` + key + ` >/proc/sys/net/ipv4/tcp_fastopen_key; echo 2001:db8::badc:de >/proc/sys/net/ipv6/conf/pod0/stable_secret
		nodegate snapshot --whole --policy old.hcl -o whole.json
		nodegate snapshot --policy old.hcl -o small.json
		nodegate check --policy new.hcl --format json || :`)
	require.True(t, code == 0, "%v", code)
	results := func(document []byte) map[string]string {
		var r struct {
			Results []struct {
				Name, Got, Error string
				Verdict          verdict.Verdict
			}
		}
		require.NoError(t, json.Unmarshal(document, &r))
		all := map[string]string{}
		for _, res := range r.Results {
			all[res.Name] = fmt.Sprint(res.Verdict, ": ", res.Got, " ", res.Error)
			assert.True(t, res.Verdict != verdict.Unknown, "%s is unknown: %s", res.Name, res.Error)
		}
		return all
	}
	want := results(out)
	replayed, _ := c.run("check", "--policy", "new.hcl", "--snapshot", "whole.json", "--format", "json")
	got := results(replayed)
	assert.True(t, len(want) == 14 && maps.Equal(got, want), "the snapshot has\n%v\nthe machine\n%v", got, want)
	for file, want := range map[string]int{"whole.json": 1, "small.json": 3} {
		out, code := c.run("preview", "--policy", "new.hcl", file, "--format", "json")
		assert.True(t, strings.Contains(string(out), `"outcome": "unknown"`) == (want == 3) && code == want,
			"preview of %s exits %d: %s", file, code, out)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "whole.json"))
	require.NoError(t, err)
	for _, secret := range []string{key, key[:8], "badc:", "badc0de"} {
		assert.True(t, !strings.Contains(string(text), secret), "the snapshot holds %q of a key", secret)
	}
	assert.True(t, strings.Contains(string(text), "tcp_fastopen_key") && strings.Contains(string(text), "pod0/stable_secret"),
		"the snapshot lacks the names of the keys")
}
