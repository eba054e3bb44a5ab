// Package packer_test asks Packer about packer.pkr.hcl. That it bakes is shown in
// images/vm.
package packer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/host/hosttest"
)

const (
	repository = "../.."
	template   = "packer.pkr.hcl"
	guide      = repository + "/docs/guides/bake-an-ami.md"
)

// packer runs Debian's Packer at the top of the repository. It asks nobody
// whether there is a newer one, and finds no credentials.
func packer(t *testing.T, args ...string) (string, error) {
	t.Helper()
	hosttest.NeedProgram(t, "packer")
	cmd := exec.CommandContext(t.Context(), "packer", args...)
	cmd.Dir = repository
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CHECKPOINT_DISABLE=1", "AWS_EC2_METADATA_DISABLED=true"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func validate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	all := append([]string{"validate", "-var", "nodegate=" + template}, args...) // any file that is there
	return packer(t, append(all, template)...)
}

func TestLayout(t *testing.T) {
	for _, file := range []string{template, "plugins.pkr.hcl"} {
		if out, err := packer(t, "fmt", "-check", "-diff", file); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// TestValid: each source, each distribution, each architecture.
func TestValid(t *testing.T) {
	for _, args := range [][]string{
		{"-only=qemu.node"},
		{"-only=amazon-ebs.node"},
		{"-only=amazon-ebs.node", "-var", "distribution=ubuntu", "-var", "architecture=arm64", "-var", "encrypt=false", "-var", "imdsv2_only=false"},
		{"-only=amazon-ebs.node", "-var", "distribution=amazon-linux-2023", "-var", "region=us-gov-west-1", "-var", `tags={team="nodes"}`, "-var", "base_owner=123456789012"},
	} {
		if out, err := validate(t, args...); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// TestWrongValues: each is refused with the template's own words.
func TestWrongValues(t *testing.T) {
	for value, want := range map[string]string{
		"region=Frankfurt":  "The region is spelt like eu-central-1",
		"distribution=arch": "The distribution is debian, ubuntu or amazon-linux-2023.",
		"architecture=x86":  "The architecture is amd64 or arm64.",
		"base_owner=12":     "The owner is an account of 12 digits, self or amazon.",
		"policy=node.yaml":  "The policy is one file that ends in .hcl or .hcl.json.",
		"accelerator=hvf":   "The accelerator is kvm or tcg.",
	} {
		out, err := validate(t, "-only=amazon-ebs.node", "-var", value)
		if err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%s: %v\n%s", value, err, out)
		}
	}
}

// TestVariables: each says what it is for.
func TestVariables(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, template))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?ms)^variable "(\w+)" \{\n(.*?)^\}`).FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 10 {
		t.Fatalf("found %d variables", len(blocks))
	}
	for _, b := range blocks {
		for _, must := range []string{"  type ", "  default ", "  description "} {
			if !strings.Contains(b[2], must) {
				t.Errorf("variable %s has no%s", b[1], must)
			}
		}
	}
}

// TestGuide: what the guide tells Packer to build in the cloud is valid. The
// plugins of a newer Packer are not fetched: where it is given the folder, it
// would find the same template in it.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?m)^```sh(.*)").FindAllStringSubmatch(string(text), -1) {
		// release, workstation, tree: images/release; qemu: images/vm.
		if !slices.Contains([]string{" release", " workstation", " tree", " qemu", " amazon", " debian"}, block[1]) {
			t.Errorf("nothing runs the block %q", block[0])
		}
	}
	asked := 0
	for _, block := range regexp.MustCompile("(?ms)^```sh (?:amazon|debian)\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			if strings.TrimSpace(line) == "packer init ." {
				continue
			}
			args, found := strings.CutPrefix(line, "packer build ")
			if !found {
				t.Errorf("nothing runs this line: %s", line)
				continue
			}
			args = strings.Replace(strings.TrimSpace(args), "policy=node.hcl", "policy=policy/builtin/kops.hcl", 1)
			args = strings.TrimSuffix(strings.TrimSuffix(args, template), " .")
			out, err := exec.Command("sh", "-c", `printf '%s\n' `+args).Output() // as a shell reads it
			if err != nil {
				t.Fatal(err)
			}
			if out, err := validate(t, strings.Split(strings.TrimSpace(string(out)), "\n")...); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			asked++
		}
	}
	if asked != 2 {
		t.Errorf("found %d builds in the guide", asked)
	}
}
