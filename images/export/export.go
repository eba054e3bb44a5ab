// Package export converts a policy into the forms that deliver it to machines: manifests, machine
// configurations, plain files. It neither reads the machine nor writes files: it returns bytes, and a
// list of the requirements that the target cannot express.
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

// Input is the input of an export.
type Input struct {
	Policy   *policy.Policy
	Texts    []policy.File // the files that Policy was read from, unchanged
	Delivery Delivery

	APIVersion string // of Cluster API; "" selects the newest
}

// Result is an export: one text, or a tree of files.
type Result struct {
	Text  []byte
	Tree  []units.File // paths are relative
	Lacks []Lack
}

// Lack is a requirement or block of the policy that the target cannot express.
type Lack struct {
	Name  string // for example sysctl.net.ipv4.ip_forward
	Why   string
	Range hcl.Range
}

// String returns the lack on one line: "sysctl.x: why (my.hcl:3)".
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
	Tree        bool // the export is a directory of files
	write       func(Input) (Result, error)
}

// Needs describes which deliveries of the binary a format supports.
type Needs int

// The deliveries that a format supports.
const (
	Settings Needs = iota // none: the export has settings only, and nodegate is not on the node
	Anyhow                // any delivery
	AnImage               // a container image
)

// Formats lists every target in the order of the help text.
func Formats() []Format {
	return []Format{
		{"kops", "hooks, fileAssets and sysctlParameters of a kops Cluster or InstanceGroup", Anyhow, false, writeKops},
		{"cloud-init", "cloud-init user data", Anyhow, false, cloudInit},
		{"ignition", "Ignition configuration, spec 3.3.0", Anyhow, false, ignition},
		{"kubeadm", "KubeadmConfig of Cluster API", Anyhow, false, clusterAPI},
		{"daemonset", "kustomize base of a DaemonSet, for nodes that already run", AnImage, true, daemonSet},
		{"readiness", "manifests that keep Pods away until the node passes: readiness rules, taint, MachineHealthCheck, RBAC", Settings,
			true, readiness},
		{"files", "sysctl.d, modules-load.d and udev rules: the settings, without nodegate", Settings, true, plainFiles},
	}
}

// NeedsBinary returns what an export without a way to fetch the binary requires of the machine's image, or "".
func (f Format) NeedsBinary(d Delivery) string {
	if f.Needs != Anyhow || d.fetched() {
		return ""
	}
	return "the image must contain " + d.path() + ", or kubelet is held. For a stock image use --binary URL --sha256 SUM: the node fetches it."
}

// maxUserData is EC2's limit for user data, in bytes and before base64.
const maxUserData = 16384

// TooLarge returns a warning if EC2 refuses the export because of its size, or "".
func (f Format) TooLarge(r Result) string {
	n := len(r.Text)
	if n <= maxUserData {
		return ""
	}
	switch f.Name {
	case "cloud-init":
		return fmt.Sprintf("%d bytes: EC2 accepts at most %d bytes of user data; compress it with gzip, which cloud-init can read, or "+
			"bake nodegate into the image",
			n, maxUserData)
	case "ignition":
		return fmt.Sprintf("%d bytes: EC2 accepts at most %d bytes of user data; host it and fetch it with ignition.config.replace", n,
			maxUserData)
	}
	return ""
}

// Find returns the format with the given name.
func Find(name string) (Format, error) {
	all := Formats()
	i := slices.IndexFunc(all, func(f Format) bool { return f.Name == name })
	if i < 0 {
		return Format{}, fmt.Errorf("unknown format %q; known formats: %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Names returns the names of all formats.
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
		return Result{}, fmt.Errorf("%s contains only settings, not nodegate: remove --binary, --sha256, --image and --path", f.Name)
	case f.Needs == AnImage && in.Delivery.Image == "":
		return Result{}, fmt.Errorf("%s needs the container image of nodegate: --image REF@sha256:DIGEST", f.Name)
	case f.Needs == AnImage && in.Delivery.Path != "":
		return Result{}, fmt.Errorf("%s runs install, which chooses the path itself: remove --path", f.Name)
	case in.Delivery.isExtension() && f.Name != "ignition":
		return Result{}, fmt.Errorf("%s is a system extension, which only ignition can deliver; %s needs the URL of the binary",
			in.Delivery.URL, f.Name)
	case in.APIVersion != "" && f.Name != "kubeadm":
		return Result{}, fmt.Errorf("--api-version works only with kubeadm, not with %s", f.Name)
	}
	for _, name := range in.Policy.Files { // the comment at the top of every export lists them
		if strings.ContainsFunc(name, unicode.IsControl) {
			return Result{}, fmt.Errorf("the policy's file name %q contains a control character: rename the file", name)
		}
	}
	r, err := f.write(in)
	if err != nil {
		return Result{}, fmt.Errorf("exporting %s: %w", f.Name, err)
	}
	return r, nil
}

// commandName returns the command that an export names as its origin.
func commandName(format string) string { return "nodegate export " + format }

// headComment returns the comment at the top of an export: its origin, how to use it, and the
// requirements that it lacks.
func headComment(format string, in Input, lacks []Lack, lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by `%s` from %s: change the policy, not this file.\n", commandName(format), strings.Join(in.Policy.Files, ", "))
	if f, err := Find(format); err == nil && f.NeedsBinary(in.Delivery) != "" {
		lines = append(lines, f.NeedsBinary(in.Delivery))
	}
	for _, l := range lines {
		fmt.Fprintln(&b, "# "+l)
	}
	for _, l := range lacks {
		fmt.Fprintln(&b, "# NOT HERE: "+l.String())
	}
	return b.String()
}
