package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/config"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// tunedTree has the constructs by which a profile can write a parameter.
func tunedTree() tree {
	return tree{
		"/etc/tuned/active_profile":      "node\n",
		"/etc/tuned/post_loaded_profile": "late\n",
		"/usr/lib/tuned/base/tuned.conf": "[sysctl]\nvm.swappiness = 10\n",
		"/etc/tuned/base/tuned.conf": "[main]\ninclude=lower, -absent,base\n[sysctl]\nvm.swappiness=20\n; c\nkernel.panic=2   # two\n" +
			"net.ipv4.tcp_rmem=\"4096 87380 16777216\"\n[vm]\ntransparent_hugepages=never\n",
		"/usr/lib/tuned/lower/tuned.conf":         "[sysctl]\nnet.core.somaxconn=>2048\nkernel.panic=9\n",
		"/usr/lib/tuned/profiles/node/tuned.conf": "[main]\ninclude=base\n[sysctl]\nnet.ipv4.ip_forward=0\n",
		"/etc/tuned/profiles/late/tuned.conf":     "[sysctl]\nkernel.panic=3\n",
	}
}

func TestTunedSysctls(t *testing.T) {
	show := func(files tree) (string, error) {
		all, err := config.TunedSysctls(files)
		var lines []string
		for _, s := range all {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s=%s %s", s.Key, s.Value, s.If)))
		}
		return strings.Join(lines, "\n"), err
	}
	got, err := show(tunedTree())
	require.NoError(t, err)
	assert.Diff(t, got, "net/core/somaxconn=>2048\nkernel/panic=9\nvm/swappiness=20\nkernel/panic=2\nnet/ipv4/tcp_rmem=4096 87380 16777216\n"+
		"net/ipv4/ip_forward=0\nkernel/panic=3", "the profiles")

	for _, c := range []struct{ profile, text, want, err string }{
		{"none", "", "", `TuneD's profile: file does not exist: tuned.conf in /etc/tuned/profiles/none, `},
		{"bad", "[sysctl]\nnet.ipv4.ip_forward\n", "", `/etc/tuned/bad/tuned.conf:2: not an assignment in a section`},
		{"openshift-node", "[main]\ninclude=-provider-${f:exec:cat:/provider},late\n[sysctl]\nvm.swappiness=5\n",
			"kernel/panic=3\nvm/swappiness=5",
			"files alone do not show which profile include=provider-${f:exec:cat:/provider} names"},
		{"loop", "[main]\ninclude=loop\n[sysctl]\nvm.swappiness=5\n", "vm/swappiness=5", ""},
		{"elsewhere", "[sysctl.arm]\ntype=sysctl\nuname_regex=aarch64\nvm.swappiness=5\n[sysctl]\nkernel.panic=${x}\n",
			"type=sysctl type=sysctl uname_regex=aarch64\nuname_regex=aarch64 type=sysctl uname_regex=aarch64\n" +
				"vm/swappiness=5 type=sysctl uname_regex=aarch64\nkernel/panic=${x} ${x}", ""},
	} {
		files := tree{"/etc/tuned/active_profile": c.profile, "/etc/tuned/late/tuned.conf": "[sysctl]\nkernel.panic=3\n"}
		if c.text != "" {
			files["/etc/tuned/"+c.profile+"/tuned.conf"] = c.text
		}
		got, err := show(files)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %s, %v", c.profile, got, err)
		}
	}
	if all, err := config.TunedSysctls(tree{}); err != nil || all != nil {
		t.Errorf("without TuneD: %v, %v", all, err)
	}
	for text, want := range map[string]bool{"": true, "daemon = 1\nreapply_sysctl = 0\n": false, "reapply_sysctl=1 # x\n": true} {
		if got, err := config.TunedReapplies(tree{"/etc/tuned/tuned-main.conf": text}); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestTunedAgainstTuneD makes the real TuneD load and merge the profiles: ours, and every profile that TuneD ships.
func TestTunedAgainstTuneD(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/tuned/profiles/loader.py")
	hosttest.Need(t, err == nil, "TuneD (Debian's package tuned)")
	compareWithTuned(t, tunedTree().onDisk(t), tunedTree(), "node late")

	shipped, err := filepath.Glob("/usr/lib/tuned/*/tuned.conf")
	if err != nil || len(shipped) < 10 {
		t.Fatalf("TuneD's own profiles: %v, %v", shipped, err)
	}
	files := tree{}
	var names []string
	for _, f := range shipped {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		files[f] = string(text)
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	compareWithTuned(t, "/", files, names...)
}

// compareWithTuned compares the values, unexpanded, of the sections [sysctl] without conditions.
func compareWithTuned(t *testing.T, root string, files tree, profiles ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", append([]string{"testdata/tuned.py", root}, profiles...)...).Output()
	if err != nil {
		t.Fatalf("TuneD: %v", err)
	}
	var want map[string]map[string]string
	require.NoError(t, json.Unmarshal(out, &want))
	if len(want) <= len(profiles)/2 {
		t.Errorf("TuneD loads only %d of %d profiles", len(want), len(profiles))
	}
	delete(files, "/etc/tuned/post_loaded_profile")
	for _, profile := range profiles {
		files["/etc/tuned/active_profile"] = profile
		all, err := config.TunedSysctls(files)
		if err != nil && !strings.HasPrefix(err.Error(), "files alone do not show") {
			t.Errorf("%s: %v", profile, err)
		}
		for _, s := range slices.Backward(all) {
			if s.If != "" && s.If != s.Value {
				continue
			}
			if value, last := want[profile][s.Key]; last && value != strings.Join(strings.Fields(s.Value), " ") {
				t.Errorf("profile %s: %s = %s, TuneD has %q", profile, s.Key, s.Value, value)
			}
			delete(want[profile], s.Key)
		}
		if err == nil && len(want[profile]) > 0 {
			t.Errorf("profile %s: not found: %v", profile, want[profile])
		}
	}
}
