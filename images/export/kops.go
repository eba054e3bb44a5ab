package export

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/policy"
	"nodegate/units"
)

// The parts of a kops Cluster and InstanceGroup that it writes (kops pkg/apis/kops,
// HookSpec and FileAssetSpec; the same in v1alpha2 and v1alpha3).
type kopsHook struct {
	Name           string
	Roles          []string `yaml:",flow"`
	UseRawManifest bool     `yaml:"useRawManifest"`
	Manifest       string
}

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
	n, err := in.node("kops")
	if err != nil {
		return Result{}, err
	}
	// fileAssets.roles is not converted from the old names, hooks' is: the new one fits both.
	roles := []string{"ControlPlane", "Node", "APIServer"}
	var k kopsSpec
	for _, u := range n.units {
		k.Spec.Hooks = append(k.Spec.Hooks, kopsHook{u.name, roles, true, u.text})
	}
	for _, f := range n.files {
		if path.Dir(f.Path) == "/etc/sysctl.d" {
			f.Content, k.Spec.SysctlParameters = kopsSysctls(f.Content)
		}
		k.Spec.FileAssets = append(k.Spec.FileAssets, kopsFile{assetName(f), f.Path, roles, fmt.Sprintf("%04o", f.Mode), string(f.Content)})
	}
	lacks := kubeletOnly(in)
	text, err := encodeYAML(k)
	comment := head("kops", in, lacks,
		"Put it below spec: of a Cluster, or of each InstanceGroup that runs kubelet (kops edit),",
		"then: kops update cluster --yes && kops rolling-update cluster --yes. In place: nodegate lint --kops FILE.")
	return Result{Text: append([]byte(comment), text...), Lacks: lacks}, err
}

// kopsSysctls takes apart a sysctl.d file. nodeup runs `sysctl --system` before
// nodegate has loaded a module, and procps leaves with 1 at a key that is not
// there, "-" before it or not: such keys are left to nodegate.
func kopsSysctls(content []byte) (file []byte, parameters []string) {
	var b bytes.Buffer
	for _, line := range lines(content) {
		name, value, is := strings.Cut(line, " = ")
		key, err := policy.ParseKey(name)
		switch {
		case !is || err != nil || strings.HasPrefix(line, "#"):
		case policy.ModuleOf(key) != "":
			line = "# " + line + " is left to nodegate: without module " + policy.ModuleOf(key) + ", nodeup's `sysctl --system` would fail"
		case ofOneLink(key):
			line = "# " + line + " is left to nodegate: without that link, nodeup's `sysctl --system` would fail"
		case !key.IsGlob():
			parameters = append(parameters, name+"="+value)
		}
		fmt.Fprintln(&b, line)
	}
	return b.Bytes(), parameters
}

// ofOneLink reports whether a key is that of a link that may not be there.
func ofOneLink(key policy.Key) bool {
	p := strings.Split(string(key), "/")
	return len(p) == 5 && p[0] == "net" && (p[2] == "conf" || p[2] == "neigh") && p[3] != "all" && p[3] != "default" && p[3] != "lo" &&
		!key.IsGlob()
}

// assetName is a file's path as a name.
func assetName(f units.File) string {
	return strings.NewReplacer("/", "-", ".", "-").Replace(strings.TrimPrefix(f.Path, "/"))
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
