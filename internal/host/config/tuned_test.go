package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/host/config"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// tunedTree has profiles with every construct by which a profile can write a parameter.
func tunedTree() tree {
	return tree{
		"/etc/tuned/active_profile":      "node\n",
		"/etc/tuned/post_loaded_profile": "late\n",
		"/usr/lib/tuned/base/tuned.conf": "[main]\nsummary=base\n[sysctl]\nvm.swappiness = 10\nnet.core.somaxconn=>2048   # at least\n" +
			"kernel.panic=1\nvm.dirty_ratio=40\n; c\n[vm]\ntransparent_hugepages=never\n[extra]\ntype=sysctl\n" +
			"net.ipv4.tcp_rmem=\"4096 87380\n  16777216\"\n",
		"/etc/tuned/base/tuned.conf": "[main]\ninclude=lower, -absent\n[sysctl]\nvm.swappiness=20\nkernel.panic=2\n",
		"/usr/lib/tuned/lower/tuned.conf": "[sysctl]\nvm.max_map_count=262144\nkernel.panic=9\n[gone]\ntype=sysctl\nfs.file-max=1\n" +
			"[off]\ntype=sysctl\nfs.nr_open=1\n",
		"/usr/lib/tuned/node/tuned.conf": "[main]\ninclude=base\n[sysctl]\nnet.ipv4.ip_forward=0\ndrop=vm.max_map_count\n[gone]\n" +
			"type=sysctl\nreplace=1\nfs.aio-max-nr=2\n[off]\nenabled=0\n",
		"/usr/lib/tuned/late/tuned.conf": "[sysctl]\nkernel.panic=3\n[arm]\ntype=sysctl\nuname_regex=aarch64\nvm.panic_on_oom=1\n",
	}
}

func TestTunedSysctls(t *testing.T) {
	files := tunedTree()
	files["/etc/sysctl.d/50-own.conf"] = "fs.aio-max-nr = 3\n# net.ipv4.ip_forward = 1\n"
	got := func() string {
		all, err := config.TunedSysctls(files)
		require.NoError(t, err)
		var lines []string
		for _, s := range all {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s=%s %s", s.Key, s.Value, s.If)))
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	const always = "kernel/panic=3\nnet/ipv4/ip_forward=0\nvm/panic_on_oom=1 uname_regex=aarch64\nvm/swappiness=20"
	assert.Diff(t, got(), always, "with reapply_sysctl")
	files["/etc/tuned/tuned-main.conf"] = "daemon = 1\nreapply_sysctl = 0\n"
	assert.Diff(t, got(), "fs/aio-max-nr=2\n"+always, "without reapply_sysctl")

	for _, c := range []struct{ profile, text, want string }{
		{"none", "", `TuneD profile "none": file does not exist in /etc/tuned/profiles, `},
		{"bad", "[sysctl]\nnet.ipv4.ip_forward\n", `/etc/tuned/bad/tuned.conf:2: not an assignment in a section`},
		{"by-function", "[main]\ninclude=${f:virt_check:a:b}\n", "/etc/tuned/by-function/tuned.conf:2: files alone do not show " +
			"which profile include=${f:virt_check:a:b} names"},
	} {
		files := tree{"/etc/tuned/active_profile": c.profile}
		if c.text != "" {
			files["/etc/tuned/"+c.profile+"/tuned.conf"] = c.text
		}
		if _, err := config.TunedSysctls(files); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", c.profile, err)
		}
	}
	if all, err := config.TunedSysctls(tree{}); err != nil || all != nil {
		t.Errorf("without TuneD: %v, %v", all, err)
	}
}

// TestTunedAgainstTuneD makes the real TuneD load and merge the profiles: ours, and every profile
// that TuneD ships.
func TestTunedAgainstTuneD(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/tuned/profiles/loader.py")
	hosttest.Need(t, err == nil, "TuneD (Debian's package tuned)")
	root := tunedTree().onDisk(t)
	compareWithTuned(t, root, tunedTree(), "node late")

	shipped, err := filepath.Glob("/usr/lib/tuned/*/tuned.conf")
	if err != nil || len(shipped) == 0 {
		t.Fatalf("TuneD's own profiles: %v, %v", shipped, err)
	}
	files := tree{}
	for _, f := range shipped {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		files[f] = string(text)
	}
	var names []string
	for _, file := range shipped {
		name := filepath.Base(filepath.Dir(file))
		files["/etc/tuned/active_profile"] = name
		if _, err := config.TunedSysctls(files); err == nil || !strings.Contains(err.Error(), "files alone do not show") {
			names = append(names, name)
		}
	}
	if len(names) < 10 {
		t.Errorf("compared only %[2]v of TuneD's %[1]d profiles", len(shipped), names)
	}
	compareWithTuned(t, "/", files, names...)
}

// compareWithTuned compares the parameters and their values, unexpanded.
func compareWithTuned(t *testing.T, root string, files tree, profiles ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", append([]string{"testdata/tuned.py", root}, profiles...)...).Output()
	if err != nil {
		t.Fatalf("TuneD: %v", err)
	}
	var want map[string]map[string]string
	require.NoError(t, json.Unmarshal(out, &want))
	files["/etc/tuned/tuned-main.conf"] = "reapply_sysctl=0\n"
	delete(files, "/etc/tuned/post_loaded_profile")
	for _, profile := range profiles {
		files["/etc/tuned/active_profile"] = profile
		all, err := config.TunedSysctls(files)
		if err != nil {
			t.Errorf("%s: %v", profile, err)
		}
		got := map[string]string{}
		for _, s := range all {
			got[s.Key] = strings.Join(strings.Fields(s.Value), " ")
		}
		if !maps.Equal(got, want[profile]) {
			t.Errorf("profile %s: %s", profile, cmp.Diff(want[profile], got))
		}
	}
}

func FuzzParseTuned(f *testing.F) {
	for _, text := range tunedTree() {
		f.Add([]byte(text))
	}
	f.Add([]byte(" [a]\n b = c # d\n  e\n\tf=\n#\n[\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := config.ParseTuned("f", text)
		for _, e := range all {
			within(t, text, e.Line)
			if e.Key == "" || e.Section == "" {
				t.Fatalf("%+v in %q", e, text)
			}
		}
		files := tree{"/etc/tuned/active_profile": "a", "/etc/tuned/a/tuned.conf": string(text)}
		_, _ = config.TunedSysctls(files)
	})
}
