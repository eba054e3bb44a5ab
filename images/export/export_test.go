package export

import (
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"nodegate/images/kops"
	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// testPolicy uses no built-in policy, so the expected results depend on this text alone.
const testPolicy = `
module "overlay" {}
sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }
sysctl "net.ipv4.ip_forward" { value = 1 }
check "swap" {}

link "overlay" {
  match {
    kind = "vxlan"
    name = "flannel*"
  }
  offload = { tx-checksum-ip-generic = false }
  mtu     = 1450
  sysctl  = { "net.ipv4.conf.*.rp_filter" = 0 }
}

link "uplink" {
  match { name = "eth0" }
  offload = { gro = true, tx-checksum-ipv4 = false }
  sysctl  = { "net.ipv4.conf.*.log_martians" = 1 }
}

link "cloud" {
  match { driver = "ena" }
  offload = { tso = false }
}

link "default" {
  match { default_route = true }
  mtu = 9001
}

sysctl "net/ipv4/conf/eth0.100/forwarding" { value = 1 }
sysctl "net.ipv4.conf.lxc*.rp_filter" { value = 0 }
sysctl "net.netfilter.nf_conntrack_max" { min = max(131072, 32768 * node.cpus) }
sysctl "net.core.bpf_jit_enable" { one_of = [1, 2] }
sysctl "kernel.pid_max" {
  value = 4194304
  when  = node.cpus > 64
}

module "not_here" { when = false }
sysctl "kernel.not_here" {
  value = 1
  when  = false
}
link "not-here" {
  match { name = "eth9" }
  offload = { tx-checksum-ipv4 = false }
  when    = false
}

gate { unit = "k3s.service" }
`

const sum = "01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b"

func deliveries() map[string]Delivery {
	return map[string]Delivery{
		"baked": {},
		"url":   {URL: "https://example.com/nodegate?a=b&c=$HOME", SHA256: sum},
		"image": {Image: "ghcr.io/example/nodegate@sha256:" + sum},
	}
}

func loadInput(t testing.TB, text string, d Delivery) Input {
	t.Helper()
	texts := []policy.File{{Name: "my.hcl", Text: []byte(text)}}
	p, diags := policy.Load(texts, policy.Options{Checks: checkNames(t)})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return Input{Policy: p, Texts: texts, Delivery: d}
}

// checkNames returns the checks that the built-in policies use; this package must not import checks.
func checkNames(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, name := range policy.Builtins() {
		f, err := policy.Builtin(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^check "([^"]+)"`).FindAllSubmatch(f.Text, -1) {
			all = append(all, string(m[1]))
		}
	}
	return all
}

func writeFormat(t testing.TB, format string, in Input) Result {
	t.Helper()
	f, err := Find(format)
	require.NoError(t, err)
	r, err := f.Write(in)
	require.NoError(t, err)
	return r
}

func decodeYAML(t testing.TB, text []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("not YAML: %v\n%s", err, text)
	}
}

// TestKopsHasNoTrap: our own lint finds nothing in the export, below a Cluster and below an
// InstanceGroup, in both versions.
func TestKopsHasNoTrap(t *testing.T) {
	for name, d := range deliveries() {
		text := writeFormat(t, "kops", loadInput(t, testPolicy+"publish {}\n", d)).Text
		for _, head := range []string{"v1alpha2\nkind: Cluster\n", "v1alpha2\nkind: InstanceGroup\n", "v1alpha3\nkind: Cluster\n"} {
			r, err := kops.Lint([]byte("apiVersion: kops.k8s.io/" + head + string(text)))
			assert.True(t, err == nil && len(r.Findings) == 0 && r.Hooks != 0 && r.Assets != 0 && r.Sysctls != 0,
				"%s, %s: %+v, %v", name, head, r, err)
		}
	}
}

type kopsOut struct {
	Spec struct {
		Hooks []struct {
			Name           string
			Roles          []string
			UseRawManifest bool `yaml:"useRawManifest"`
			Manifest       string
		}
		FileAssets []struct {
			Name, Path, Mode, Content string
			Roles                     []string
			IsBase64                  *bool `yaml:"isBase64"`
		} `yaml:"fileAssets"`
		SysctlParameters []string `yaml:"sysctlParameters"`
	}
}

// TestKops reads the YAML as kops does.
func TestKops(t *testing.T) {
	r := writeFormat(t, "kops", loadInput(t, testPolicy, Delivery{}))
	var k kopsOut
	decodeYAML(t, r.Text, &k)
	for _, h := range k.Spec.Hooks {
		if !h.UseRawManifest || !strings.Contains(h.Manifest, "\n[Install]\nWantedBy=multi-user.target\n") ||
			strings.Join(h.Roles, " ") != "ControlPlane Node APIServer" {
			t.Errorf("hook %+v", h)
		}
	}
	names := map[string]bool{}
	files := map[string]string{}
	for _, a := range k.Spec.FileAssets {
		if names[a.Name] || a.Mode != "0644" || a.IsBase64 != nil || strings.Join(a.Roles, " ") != "ControlPlane Node APIServer" {
			t.Errorf("asset %+v", a)
		}
		names[a.Name] = true
		files[a.Path] = a.Content
	}
	if files["/etc/nodegate/policy.d/my.hcl"] != testPolicy {
		t.Error("the policy was changed")
	}
	if !strings.Contains(files["/etc/systemd/system/k3s.service.d/10-nodegate.conf"], " exec "+units.Binary+" gate; ") {
		t.Errorf("no gate: %v", files)
	}
	// Neither place may contain a key at which nodeup's `sysctl --system` would fail.
	for _, text := range append(strings.Split(files["/etc/sysctl.d/99-zz-nodegate.conf"], "\n"), k.Spec.SysctlParameters...) {
		if !strings.HasPrefix(text, "#") && (strings.Contains(text, "*") && strings.Contains(text, "=0") || strings.Contains(text, "bridge") ||
			strings.Contains(text, "netfilter") || strings.Contains(text, "eth0")) {
			t.Errorf("a key that may be missing on the node: %s", text)
		}
	}
	if !strings.Contains(strings.Join(k.Spec.SysctlParameters, " "), "net.ipv4.ip_forward=1") {
		t.Errorf("sysctlParameters: %v", k.Spec.SysctlParameters)
	}
	if len(r.Lacks) != 1 || !strings.Contains(r.Lacks[0].String(), "the policy's gate holds k3s.service (my.hcl:") {
		t.Errorf("lacks: %v", r.Lacks)
	}
}

// TestUglyPolicies: every text of a policy passes through YAML unchanged.
func TestUglyPolicies(t *testing.T) {
	for _, text := range []string{
		"use \"kubernetes\" {}\r\n# CRLF\r\n",
		"# tabs\t\n\tuse \"kubernetes\" {}   \n\n\n",
		"module \"overlay\" {# why\n}\n", // {# starts a comment in Jinja
		"# no end of line\nuse \"kubernetes\" {}",
		"\n\n  # leading lines\nuse \"kubernetes\" {}\n",
		"# ünï \u2028 \u0085 \U0001F600 'x' \"y\" {{ z }} ${HOME} %n @BIN@\nuse \"kubernetes\" {}\n",
	} {
		for _, format := range []string{"kops", "cloud-init", "kubeadm"} {
			found, want := false, text
			if format == "kubeadm" { // Cluster API's template would change all of these texts
				want = base64.StdEncoding.EncodeToString([]byte(text))
			}
			var n yaml.Node
			decodeYAML(t, writeFormat(t, format, loadInput(t, text, Delivery{})).Text, &n)
			var walk func(*yaml.Node)
			walk = func(n *yaml.Node) {
				found = found || n.Value == want
				for _, c := range n.Content {
					walk(c)
				}
			}
			walk(&n)
			assert.True(t, found, "%s: %q was changed", format, text)
		}
	}
}

// TestLacks compares the lacks of every format, which must also be in the output.
func TestLacks(t *testing.T) {
	const file = "testdata/lacks.golden"
	var b strings.Builder
	for _, f := range Formats() {
		d := Delivery{}
		if f.Needs == AnImage {
			d = deliveries()["image"]
		}
		r := writeFormat(t, f.Name, loadInput(t, testPolicy+"publish {}\n", d))
		fmt.Fprintf(&b, "%s\n", f.Name)
		for _, l := range r.Lacks {
			fmt.Fprintf(&b, "    %s\n", l)
			comment := []byte("# NOT HERE: " + l.String() + "\n")
			whole := r.Text
			for _, f := range r.Tree {
				whole = append(whole, f.Content...)
			}
			assert.True(t, strings.Contains(string(whole), string(comment)), "%s: the output does not mention %s", f.Name, l)
		}
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Diff(t, b.String(), string(want), "%s (UPDATE=1 rewrites it)", file)
}

// TestSettings compares the complete export for a target without nodegate.
func TestSettings(t *testing.T) {
	text := ""
	for _, f := range writeFormat(t, "files", loadInput(t, testPolicy, Delivery{})).Tree {
		text += "==> " + f.Path + "\n" + string(f.Content)
	}
	const file = "testdata/files.golden"
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Diff(t, text, string(want), "%s (UPDATE=1 rewrites it)", file)
}

// TestStopsMachine: a parameter with which a wrong number stops the machine is in no sysctl.d, where no break-glass reaches.
func TestStopsMachine(t *testing.T) {
	in := loadInput(t, "sysctl \"vm.min_free_kbytes\" { value = 262144 }\nsysctl \"kernel.pid_*\" { value = 8192 }\n"+
		"sysctl \"fs.file-max\" { value = 2097152 }\nsysctl \"vm.swappiness\" { value = 10 }\n", deliveries()["files"])
	r := writeFormat(t, "files", in)
	for _, f := range r.Tree {
		if text := string(f.Content); strings.Contains(f.Path, "sysctl.d") && (!strings.Contains(text, "\nvm.swappiness = 10\n") ||
			!strings.Contains(text, "\nfs.file-max = 2097152\n") || strings.Contains(text, "min_free_kbytes =") || strings.Contains(text, "\nkernel.pid_")) {
			t.Error(text)
		}
	}
	assert.True(t, len(r.Lacks) == 2 && r.Lacks[0].Name == "sysctl.vm.min_free_kbytes", "%v", r.Lacks)
}
