// Package packer_test validates packer.pkr.hcl with Packer. The bake itself is tested in internal/e2e/vm.
package packer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const (
	repository = "../.."
	template   = "packer.pkr.hcl"
	guide      = repository + "/docs/guides/bake-an-ami.md"
)

// runPacker runs the Packer that PACKER names, or Debian's, at the top of the repository. Packer does
// not check for a newer version, and finds no credentials.
func runPacker(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("PACKER")
	if program == "" {
		hosttest.NeedProgram(t, "packer")
		program = "packer"
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = repository
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CHECKPOINT_DISABLE=1", "AWS_EC2_METADATA_DISABLED=true",
		"PACKER_PLUGIN_PATH=" + os.Getenv("PACKER_PLUGIN_PATH"),
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// readableTemplate returns the template in a form that this Packer can read: debian.sed converts it for Debian's version.
func readableTemplate(t *testing.T) string {
	t.Helper()
	if os.Getenv("PACKER") != "" {
		return template
	}
	form, err := exec.CommandContext(t.Context(), "sed", "-f", "debian.sed", filepath.Join(repository, template)).Output()
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "debian.pkr.hcl")
	require.NoError(t, os.WriteFile(name, form, 0o600))
	return name
}

func validate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	all := append([]string{"validate", "-var", "nodegate=" + template}, args...) // any existing file will do
	return runPacker(t, append(all, readableTemplate(t))...)
}

func TestLayout(t *testing.T) {
	out, err := runPacker(t, "fmt", "-check", "-diff", template)
	assert.True(t, err == nil, "%v\n%s", err, out)
}

// TestDebianForm: debian.sed removes only the parts that Debian's Packer does not support, and the result
// does not open SSH to more networks.
func TestDebianForm(t *testing.T) {
	t.Setenv("PACKER", "")
	whole := require.ReadFile(t, filepath.Join(repository, template))
	form := require.ReadFile(t, readableTemplate(t))
	normal := func(text []byte) (lines []string) { // ignores alignment
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	kept := normal(form)
	gone := slices.DeleteFunc(normal(whole), func(line string) bool { return slices.Contains(kept, line) || strings.HasSuffix(line, "{") })
	if diff := cmp.Diff([]string{
		`required_version = ">= 1.10.0"`, `source = "github.com/hashicorp/amazon"`, `version = "~> 1.3"`,
		`source = "github.com/hashicorp/qemu"`, `version = "~> 1.1"`,
		`http_tokens = var.imdsv2_only ? "required" : "optional"`, `imds_support = var.imdsv2_only ? "v2.0" : ""`,
		`temporary_security_group_source_cidrs = local.ssh_from`, `temporary_security_group_source_public_ip = length(local.ssh_from) == 0`,
	}, gone); diff != "" {
		t.Error(diff)
	}
	assert.Contains(t, string(form), `= concat(["127.0.0.1/32"], local.ssh_from)`,
		"without ssh_from the whole network could reach the instance's SSH")
}

// TestValid covers every source, distribution, architecture and AWS partition.
func TestValid(t *testing.T) {
	for _, args := range [][]string{
		{"-only=qemu.node"},
		{"-only=amazon-ebs.node"},
		{"-only=amazon-ebs.node", "-var", "distribution=ubuntu", "-var", "architecture=arm64", "-var", "encrypt=false", "-var",
			"imdsv2_only=false"},
		{"-only=amazon-ebs.node", "-var", "distribution=ubuntu", "-var", "region=cn-northwest-1", "-var", "session_manager_profile=ssm"},
		{"-only=amazon-ebs.node", "-var", "distribution=amazon-linux-2023", "-var", "region=us-gov-west-1", "-var", `tags={team="nodes"}`},
		{"-only=amazon-ebs.node", "-var", "region=us-gov-west-1", "-var", "base_owner=123456789012", "-var", `ssh_from=["192.0.2.7/32"]`},
	} {
		out, err := validate(t, args...)
		assert.True(t, err == nil, "%v: %v\n%s", args, err, out)
	}
}

// TestNoOwner: the template does not guess the owner of a Debian image in other AWS partitions.
func TestNoOwner(t *testing.T) {
	for _, region := range []string{"us-gov-west-1", "cn-north-1"} {
		out, err := validate(t, "-only=amazon-ebs.node", "-var", "region="+region)
		assert.True(t, err != nil && strings.Contains(out, "must declare an owner"), "%s: %v\n%s", region, err, out)
	}
}

// TestWrongValues: the template refuses wrong values with its own error message.
func TestWrongValues(t *testing.T) {
	for value, want := range map[string]string{
		"region=Frankfurt":  "The region must look like eu-central-1",
		"distribution=arch": "The distribution must be debian, ubuntu or amazon-linux-2023.",
		"architecture=x86":  "The architecture must be amd64 or arm64.",
		"base_owner=12":     "The owner must be an account of 12 digits, self or amazon.",
		"policy=node.yaml":  "The policy must be one file that ends in .hcl.",
		"accelerator=hvf":   "The accelerator must be kvm or tcg.",
	} {
		out, err := validate(t, "-only=amazon-ebs.node", "-var", value)
		assert.True(t, err != nil && strings.Contains(strings.Join(strings.Fields(out), " "), want), "%s: %v\n%s", value, err, out)
	}
}

// TestRunsWhatWasUploaded: the template runs only the uploaded binary, because the installed path depends
// on whether the base image contains the package. It removes the upload directory last.
func TestRunsWhatWasUploaded(t *testing.T) {
	text := require.ReadFile(t, filepath.Join(repository, template))
	calls := regexp.MustCompile(`"(\S*nodegate) (install|check|apply)`).FindAllStringSubmatch(string(text), -1)
	assert.Equal(t, len(calls), 4, "the template calls nodegate")
	for _, c := range calls {
		assert.True(t, c[1] == "nodegate-bake/nodegate", "%s calls %s, which the machine may not have", c[2], c[1])
	}
	_, after, removed := strings.Cut(string(text), `"rm -r nodegate-bake"`)
	assert.True(t, removed && !strings.Contains(after, `"nodegate-bake`), "the upload directory is not removed, or is used afterwards")
}

// TestVariables: every variable has a type, a default and a description.
func TestVariables(t *testing.T) {
	text := require.ReadFile(t, filepath.Join(repository, template))
	blocks := regexp.MustCompile(`(?ms)^variable "(\w+)" \{\n(.*?)^\}`).FindAllStringSubmatch(string(text), -1)
	require.True(t, len(blocks) >= 10, "found %d variables", len(blocks))
	for _, b := range blocks {
		for _, must := range []string{"  type ", "  default ", "  description "} {
			assert.True(t, strings.Contains(b[2], must), "variable %s has no%s", b[1], must)
		}
	}
}

// TestGuide: the guide's command for a build in the cloud is valid.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?m)^```sh(.*)").FindAllStringSubmatch(string(text), -1) {
		// release, workstation, tree: images/release; qemu, debian: internal/e2e/vm.
		if !slices.Contains([]string{" release", " workstation", " tree", " qemu", " amazon", " debian"}, block[1]) {
			t.Errorf("nothing runs the block %q", block[0])
		}
	}
	block := regexp.MustCompile("(?ms)^```sh amazon\npacker init \\.\npacker build (.*?) \\.\n```").FindStringSubmatch(string(text))
	require.True(t, block != nil, "the guide's block for a build in the cloud lacks packer init or packer build")
	args := strings.Fields(strings.Replace(block[1], "policy=node.hcl", "policy=policy/builtin/kops.hcl", 1))
	if out, err := validate(t, args...); err != nil {
		t.Errorf("%s: %v\n%s", block[1], err, out)
	}
}
