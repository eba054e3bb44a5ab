package export

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestNeedsBase64: text that Cluster API's YAML and cloud-init's Jinja do not change stays readable.
func TestNeedsBase64(t *testing.T) {
	var k kubeadmConfig
	decodeYAML(t, writeFormat(t, "kubeadm", loadInput(t, testPolicy[1:], deliveries()["url"])).Text, &k)
	for _, f := range k.Spec.Files {
		assert.True(t, f.Encoding == "", "%s: encoding %s, although its text would arrive unchanged", f.Path, f.Encoding)
	}
	for text, want := range map[string]bool{
		"# ü\n\tuse \"kubernetes\" {}\n": false, " a\n": true, "\ta\n": true, "a \n": false, "\na\n": true, "a\n\n": true, "a": true, "a\r\n": true, "a\u0085\n": true,
		"{{ a }}\n": true, "{% a\n": true, "{# a\n": true, "${ a }\n": false,
	} {
		assert.True(t, needsBase64(text) == want, "%q: %v, want %v", text, !want, want)
	}
}

// TestClusterAPI checks both API versions, and that kubeadm starts after nodegate-apply or after the
// wait has ended.
func TestClusterAPI(t *testing.T) {
	var commands []string
	for version, want := range map[string]string{"": "v1beta2", "v1beta2": "v1beta2", "v1beta1": "v1beta1"} {
		in := loadInput(t, testPolicy, Delivery{})
		in.APIVersion = version
		var k kubeadmConfig
		decodeYAML(t, writeFormat(t, "kubeadm", in).Text, &k)
		assert.Equal(t, k.APIVersion, "bootstrap.cluster.x-k8s.io/"+want, "%q gives", version)
		commands = k.Spec.PreKubeadmCommands
	}
	if _, err := clusterAPI(loadInput(t, testPolicy+strings.Repeat("# 10\n", 2048), Delivery{})); err == nil ||
		!strings.Contains(err.Error(), "split it") {
		t.Errorf("a policy too large for the API server: %v", err)
	}
	for _, c := range []struct {
		state string
		code  int  // exit code of is-active from the third call on
		warns bool // the wait ends with a warning
	}{{"active", 0, false}, {"never", 3, true}} {
		tools := t.TempDir()
		for name, text := range map[string]string{
			"sleep":     "echo >>" + tools + "/slept",
			"systemctl": `[ "$1" = is-active ] && [ "$(wc -l <` + tools + `/slept)" -ge 3 ] && exit ` + strconv.Itoa(c.code) + "; exit 3",
		} {
			require.NoError(t, os.WriteFile(tools+"/"+name, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		}
		require.NoError(t, os.WriteFile(tools+"/slept", nil, 0o644))
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", commands[len(commands)-1])
		cmd.Env = []string{"PATH=" + tools + ":" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		assert.True(t, err == nil && strings.Contains(string(out), "has not succeeded") == c.warns, "%s: %v\n%s", c.state, err, out)
	}
}
