// Package export writes one policy in the forms that carry it onto machines:
// manifests, machine configurations, plain files. It reads no machine and writes
// no file: policy in, bytes out, and with them what the target cannot express.
package export

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
	"nodegate/units"
)

// Input is what an export is made from.
type Input struct {
	Policy   *policy.Policy
	Texts    []policy.File // the files that Policy was read from, as given
	Delivery Delivery

	APIVersion string // of Cluster API; "" is the newest
}

// Result is an export: one text, or a tree of files.
type Result struct {
	Text  []byte
	Tree  []units.File // paths are relative
	Lacks []Lack
}

// Lack is one thing the policy asks for and the target cannot express.
type Lack struct {
	Name  string // of the requirement
	Why   string
	Range hcl.Range
}

// String is the lack in one line: "sysctl.x: why (my.hcl:3)".
func (l Lack) String() string {
	if l.Range.Filename == "" {
		return l.Name + ": " + l.Why
	}
	return fmt.Sprintf("%s: %s (%s:%d)", l.Name, l.Why, l.Range.Filename, l.Range.Start.Line)
}

// Format is one target.
type Format struct {
	Name        string
	Description string
	Needs       Needs
	Tree        bool // it is a folder of files
	write       func(Input) (Result, error)
}

// Needs says which deliveries of the binary a format knows.
type Needs int

// What a format carries beside the settings.
const (
	Settings Needs = iota // nothing: nodegate is not on the node
	Anyhow                // nodegate, by any delivery
	AnImage               // nodegate, in an image
)

// Formats is every target, in the order in which the help lists them.
func Formats() []Format {
	return []Format{
		{"kops", "hooks, fileAssets and sysctlParameters of a kops Cluster or InstanceGroup", Anyhow, false, writeKops},
		{"cloud-init", "cloud-init user data", Anyhow, false, cloudInit},
		{"butane", "Butane configuration (Fedora CoreOS)", Anyhow, false, butane},
		{"ignition", "Ignition configuration, spec 3.3.0", Anyhow, false, ignition},
		{"kubeadm", "KubeadmConfig of Cluster API", Anyhow, false, clusterAPI},
		{"daemonset", "kustomize base of a DaemonSet, for nodes that run already", AnImage, true, daemonSet},
		{"readiness", "what keeps Pods away until the node passes: readiness rules, taint, Cluster API's check, RBAC", Settings, true, readiness},
		{"files", "sysctl.d, modules-load.d and udev rules: the settings, without nodegate", Settings, true, plainFiles},
		{"talos", "Talos machine configuration patch: the settings", Settings, false, talos},
		{"bottlerocket", "Bottlerocket user data: the settings", Settings, false, bottlerocket},
	}
}

// mostUserData is what EC2 takes of user data, in bytes and before base64.
const mostUserData = 16384

// TooLarge returns what a person should know of an export that one of its carriers refuses for its size, "" where all take it.
func (f Format) TooLarge(r Result) string {
	n := len(r.Text)
	if n <= mostUserData {
		return ""
	}
	switch f.Name {
	case "cloud-init":
		return fmt.Sprintf("%d bytes: EC2 takes %d of user data; compress it (gzip), which cloud-init reads, or bake nodegate into the image",
			n, mostUserData)
	case "ignition":
		return fmt.Sprintf("%d bytes: EC2 takes %d of user data; put it where ignition.config.replace fetches it", n, mostUserData)
	}
	return ""
}

// Find is the format of a name.
func Find(name string) (Format, error) {
	all := Formats()
	i := slices.IndexFunc(all, func(f Format) bool { return f.Name == name })
	if i < 0 {
		return Format{}, fmt.Errorf("there is no format %q; there is %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Names is the name of every format.
func Names() []string {
	var all []string
	for _, f := range Formats() {
		all = append(all, f.Name)
	}
	return all
}

// Write makes the export.
func (f Format) Write(in Input) (Result, error) {
	switch {
	case f.Needs == Settings && in.Delivery != Delivery{}:
		return Result{}, fmt.Errorf("%s carries settings only, no nodegate: leave --binary, --sha256, --image and --path away", f.Name)
	case f.Needs == AnImage && in.Delivery.Image == "":
		return Result{}, fmt.Errorf("%s needs the image that nodegate comes in: --image REF@sha256:DIGEST", f.Name)
	case f.Needs == AnImage && in.Delivery.Path != "":
		return Result{}, fmt.Errorf("%s runs install, which knows its place: leave --path away", f.Name)
	case in.Delivery.isExtension() && f.Name != "butane" && f.Name != "ignition":
		return Result{}, fmt.Errorf("%s is a system extension, which butane and ignition bring; %s wants the binary's URL", in.Delivery.URL,
			f.Name)
	case in.APIVersion != "" && f.Name != "kubeadm":
		return Result{}, fmt.Errorf("--api-version is for kubeadm, not for %s", f.Name)
	}
	for _, name := range in.Policy.Files { // they are in the comments at the head of every export
		if strings.ContainsFunc(name, unicode.IsControl) {
			return Result{}, fmt.Errorf("the name of the policy %q has a control character in it: rename it", name)
		}
	}
	r, err := f.write(in)
	if err != nil {
		return Result{}, fmt.Errorf("exporting %s: %w", f.Name, err)
	}
	return r, nil
}

// command is how an export names its origin.
func command(format string) string { return "nodegate export " + format }

// head is the comment at the top of an export: where it comes from, what it
// does not say, and what to do with it.
func head(format string, in Input, lacks []Lack, lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by `%s` from %s: change the policy, not this file.\n", command(format), strings.Join(in.Policy.Files, ", "))
	for _, l := range lines {
		fmt.Fprintln(&b, "# "+l)
	}
	for _, l := range lacks {
		fmt.Fprintln(&b, "# NOT HERE: "+l.String())
	}
	return b.String()
}
