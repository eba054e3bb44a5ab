package export

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// kustomize builds the base. It is run as a Go module, because Debian's version is from 2020.
const kustomize = "sigs.k8s.io/kustomize/kustomize/v5@v5.6.0"

const podPolicy = testPolicy + "publish { by = \"pod\" }\n"

// writeBase writes the exported directory.
func writeBase(t *testing.T, policy string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range writeFormat(t, "daemonset", loadInput(t, policy, deliveries()["image"])).Tree {
		name := filepath.Join(dir, f.Path)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, f.Content, f.Mode))
	}
	return dir
}

// TestKustomizeBuilds: kustomize builds the base, and the DaemonSet uses the ConfigMap generated from the policy.
func TestKustomizeBuilds(t *testing.T) {
	version := exec.CommandContext(t.Context(), "go", "run", kustomize, "version")
	version.Dir = t.TempDir() // outside of this module
	out, err := version.CombinedOutput()
	hosttest.Need(t, err == nil, "kustomize from the Go module proxy: "+strings.TrimSpace(string(out)))
	build := exec.CommandContext(t.Context(), "go", "run", kustomize, "build", writeBase(t, podPolicy))
	build.Dir = version.Dir
	var stderr bytes.Buffer
	build.Stderr = &stderr
	out, err = build.Output()
	require.True(t, err == nil, "kustomize build: %v\n%s", err, stderr.String())
	var name, used string
	d := yaml.NewDecoder(bytes.NewReader(out))
	for {
		var doc struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Data     map[string]string
			Fixed    bool `yaml:"immutable"`
			Spec     struct {
				Template struct {
					Spec struct {
						Volumes []struct {
							ConfigMap struct{ Name string } `yaml:"configMap"`
						}
					}
				}
			}
		}
		if d.Decode(&doc) != nil {
			break
		}
		switch doc.Kind {
		case "ConfigMap":
			name = doc.Metadata.Name
			if doc.Data["my.hcl"] != podPolicy || !doc.Fixed {
				t.Errorf("the policy in the config map is %q, immutable: %t", doc.Data, doc.Fixed)
			}
		case "DaemonSet":
			for _, v := range doc.Spec.Template.Spec.Volumes {
				used += v.ConfigMap.Name
			}
		}
		want := map[string]string{"ConfigMap": "kube-system", "DaemonSet": "kube-system", "ServiceAccount": "kube-system",
			"Role": "default", "RoleBinding": "default"}[doc.Kind]
		assert.Equal(t, doc.Metadata.Namespace, want, "%s in namespace", doc.Kind)
	}
	assert.True(t, name != "" && name == used && strings.HasPrefix(name, "nodegate-policy-"), "config map %q, used %q", name, used)
}

// TestLeastPrivilege: no container of the Pod has privileges or a token that it does not need.
func TestLeastPrivilege(t *testing.T) {
	checkLeastPrivilege(t, testPolicy, "")
	checkLeastPrivilege(t, podPolicy, "nodegate")
}

// TestConfigMapKeys: a policy whose name cannot be a key of a ConfigMap is refused, because the base
// could not be applied.
func TestConfigMapKeys(t *testing.T) {
	f, err := Find("daemonset")
	require.NoError(t, err)
	for name, right := range map[string]bool{
		"my.hcl": true, "dir/a-B_2.hcl": true, "my node.hcl": false, "x=y.hcl": false, "é.hcl": false, strings.Repeat("a", 250) + ".hcl": false,
	} {
		in := loadInput(t, testPolicy, deliveries()["image"])
		in.Texts[0].Name = name
		if _, err := f.Write(in); (err == nil) != right || err != nil && !strings.Contains(err.Error(), "rename it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func checkLeastPrivilege(t *testing.T, policy, account string) {
	t.Helper()
	text, err := os.ReadFile(writeBase(t, policy) + "/daemonset.yaml")
	require.NoError(t, err)
	type container struct {
		Image           string
		SecurityContext map[string]any          `yaml:"securityContext"`
		VolumeMounts    []struct{ Name string } `yaml:"volumeMounts"`
	}
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					HostPID                      bool        `yaml:"hostPID"`
					HostIPC                      bool        `yaml:"hostIPC"`
					HostNetwork                  bool        `yaml:"hostNetwork"`
					ServiceAccountName           string      `yaml:"serviceAccountName"`
					AutomountServiceAccountToken *bool       `yaml:"automountServiceAccountToken"`
					InitContainers               []container `yaml:"initContainers"`
					Containers                   []container
				}
			}
		}
	}
	decodeYAML(t, text, &d)
	pod := d.Spec.Template.Spec
	if pod.HostPID || pod.HostIPC || pod.HostNetwork || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken ||
		pod.ServiceAccountName != account {
		t.Errorf("the pod: %+v", pod)
	}
	all := append(pod.InitContainers, pod.Containers...)
	require.True(t, len(all) == 2, "containers: %+v", all)
	for i, c := range all {
		s := c.SecurityContext
		drop, _ := yaml.Marshal(s["capabilities"])
		if s["privileged"] == true || s["allowPrivilegeEscalation"] != false || s["readOnlyRootFilesystem"] != true ||
			string(drop) != "drop:\n    - ALL\n" ||
			s["seLinuxOptions"] == nil || c.Image != deliveries()["image"].Image {
			t.Errorf("%s: %+v", c.Image, s)
		}
		token := slices.ContainsFunc(c.VolumeMounts, func(m struct{ Name string }) bool { return m.Name == "token" })
		if want := account != "" && i == 1; token != want {
			t.Errorf("container %d has a token: %v", i, token)
		}
	}
	if strings.Contains(string(text), "path: /,") || strings.Contains(string(text), "path: /}") {
		t.Error("the host's root is mounted")
	}
	if strings.Contains(string(text), "@RE") || strings.Contains(string(text), "@P") || strings.Contains(string(text), "@C") {
		t.Errorf("a placeholder is left:\n%s", text)
	}
}
