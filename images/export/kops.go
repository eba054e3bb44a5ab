package export

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/policy"
)

// kopsHook is a HookSpec of kops (pkg/apis/kops); it is the same in v1alpha2 and v1alpha3.
type kopsHook struct {
	Name           string
	Roles          []string `yaml:",flow"`
	UseRawManifest bool     `yaml:"useRawManifest"`
	Manifest       string
}

// kopsFile is a FileAssetSpec, also the same in both versions.
type kopsFile struct {
	Name    string
	Path    string
	Roles   []string `yaml:",flow"`
	Mode    string
	Content string
}

type kopsSpec struct {
	Spec struct {
		Hooks            []kopsHook
		FileAssets       []kopsFile `yaml:"fileAssets"`
		SysctlParameters []string   `yaml:"sysctlParameters,omitempty"`
	}
}

func writeKops(in Input) (Result, error) {
	n, err := in.buildNode("kops")
	if err != nil {
		return Result{}, err
	}
	// kops converts old role names in hooks but not in fileAssets; the new names work in both.
	roles := []string{"ControlPlane", "Node", "APIServer"}
	var k kopsSpec
	for _, u := range n.units {
		k.Spec.Hooks = append(k.Spec.Hooks, kopsHook{u.name, roles, true, u.text})
	}
	for _, f := range n.files {
		if path.Dir(f.Path) == "/etc/sysctl.d" {
			f.Content, k.Spec.SysctlParameters = kopsSysctls(f.Content, in.Policy.ModuleNames())
		}
		name := strings.NewReplacer("/", "-", ".", "-").Replace(strings.TrimPrefix(f.Path, "/"))
		k.Spec.FileAssets = append(k.Spec.FileAssets, kopsFile{name, f.Path, roles, fmt.Sprintf("%04o", f.Mode), string(f.Content)})
	}
	lacks := kubeletOnly(in)
	text, err := encodeYAML(k)
	comment := headComment("kops", in, lacks,
		"Put it below spec: of a Cluster, or of each InstanceGroup that runs kubelet (kops edit).",
		"Then run: kops update cluster --yes && kops rolling-update cluster --yes",
		"Check the whole manifest with: nodegate lint --kops FILE")
	return Result{Text: append([]byte(comment), text...), Lacks: lacks}, err
}

// kopsSysctls splits a sysctl.d file into a fileAsset and sysctlParameters. nodeup runs
// `sysctl --system` before nodegate has loaded a module, and procps exits with 1 at a missing key,
// even with a leading "-". So keys that may be missing are left to nodegate.
func kopsSysctls(content []byte, modules []string) (file []byte, parameters []string) {
	var b bytes.Buffer
	for _, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
		name, value, assigned := strings.Cut(line, " = ")
		key, err := policy.ParseKey(name)
		switch {
		case !assigned || err != nil || strings.HasPrefix(line, "#"):
		case policy.ModuleFor(key, modules) != "":
			line = "# " + line + " is left to nodegate: without module " + policy.ModuleFor(key, modules) + ", nodeup's `sysctl --system` would fail"
		case belongsToLink(key):
			line = "# " + line + " is left to nodegate: without that link, nodeup's `sysctl --system` would fail"
		case !key.IsGlob():
			parameters = append(parameters, name+"="+value)
		}
		fmt.Fprintln(&b, line)
	}
	return b.Bytes(), parameters
}

// belongsToLink reports whether a key belongs to one link, which may be missing.
func belongsToLink(key policy.Key) bool {
	p := strings.Split(string(key), "/")
	return len(p) == 5 && p[0] == "net" && (p[2] == "conf" || p[2] == "neigh") && p[3] != "all" && p[3] != "default" && p[3] != "lo" &&
		!key.IsGlob()
}

func encodeYAML(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
