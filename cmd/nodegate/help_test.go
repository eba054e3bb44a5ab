package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// allCommands returns the commands that help lists, with those below them, except cobra's own.
func allCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() && below.Name() != "completion" && below.Name() != "help" {
			all = append(all, allCommands(below)...)
		}
	}
	return all
}

// TestHelpWidth: every help fits 80 columns, and has no words of the libraries.
func TestHelpWidth(t *testing.T) {
	library := regexp.MustCompile(`arg\(s\)|--[a-z-]+ (string|duration|int|stringArray)\b`)
	for _, c := range allCommands(newRoot()) {
		var b bytes.Buffer
		c.Root().SetOut(&b)
		require.NoError(t, c.Help())
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > helpWidth || library.MatchString(line) {
				t.Errorf("%s --help: %s", c.CommandPath(), line)
			}
		}
	}
}

// TestHelpGroups: help lists the core verbs first, in their order, and each other verb once below them.
func TestHelpGroups(t *testing.T) {
	var b bytes.Buffer
	root := newRoot()
	root.SetOut(&b)
	require.NoError(t, root.Help())
	_, lists, _ := strings.Cut(b.String(), "\nCore Commands:\n")
	core, more, _ := strings.Cut(lists, "\nMore Commands:\n")
	more, _, _ = strings.Cut(more, "\n\n")
	names := func(list string) (all []string) {
		for line := range strings.Lines(list) {
			if words := strings.Fields(line); len(words) > 0 {
				all = append(all, words[0])
			}
		}
		return all
	}
	got := names(core)
	assert.True(t, slices.Equal(got, coreVerbs()), "core: %q", got)
	for _, name := range available(root) {
		in := slices.Contains(names(more), name)
		assert.True(t, in != slices.Contains(coreVerbs(), name), "%s: among the others: %t", name, in)
	}
}

// TestHelpExamples runs the examples of the help texts in a network namespace, with a scratch /etc, /run, /var/lib and /mnt. None may be a
// wrong call (exit status 2).
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	hosttest.NeedProgram(t, "ip")
	hosttest.NeedProgram(t, "iptables-nft") // its package has iptables-save
	// These need a virtual machine, a cluster or a cloud.
	elsewhere := regexp.MustCompile(`^(nodegate (publish|audit --(kubeconfig|service))|aws|ExecStartPre=)`)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"setup": exampleSetup, "cluster.yaml": "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nspec: {}\n",
		"tools/kops": "#!/bin/sh\ncat cluster.yaml\n", "nodes": "node1\n", "rules.nft": "table ip x\n", "old.hcl": "sysctl \"kernel.panic\" { value = 10 }\n", "new.hcl": "sysctl \"kernel.panic\" { value = 20 }\n",
		"tools/kubectl": "#!/bin/sh\necho '{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [" +
			"{\"apiVersion\": \"discovery.k8s.io/v1\", \"kind\": \"EndpointSlice\", \"metadata\": {\"name\": \"a\", \"namespace\": \"b\"}, " +
			"\"addressType\": \"IPv4\", \"endpoints\": []}]}'\n",
		"tools/ssh": "#!/bin/sh\ncat reports/one.json\n",
		"my.hcl": "use \"flannel-vxlan\" {}\nlink \"overlay\" {\n  match { kind = \"vxlan\" }\n  mtu    = 1450\n  reason = \"r\"\n}\n" +
			"gate { unit_absent = \"allow\" }\n",
	} {
		name = filepath.Join(dir, name)
		mode := os.FileMode(0o644)
		if strings.Contains(name, "/tools/") {
			mode = 0o755
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), mode))
	}
	var script strings.Builder
	ran := 0
	for _, c := range allCommands(newRoot()) {
		joined := regexp.MustCompile(`([|\\])\n\s*`).ReplaceAllString(c.Example, "$1 ")
		for line := range strings.Lines(strings.ReplaceAll(joined, `\ `, "")) {
			line = regexp.MustCompile(`\S {3,}.*$`).ReplaceAllStringFunc(strings.TrimSpace(line), func(s string) string { return s[:1] })
			if line == "" || elsewhere.MatchString(line) {
				continue
			}
			line = regexp.MustCompile(`(SUM|DIGEST)\b`).ReplaceAllString(line, strings.Repeat("0", 64))
			if strings.HasPrefix(line, "nodegate watch") {
				line = "timeout 1 " + line
			}
			ran++
			fmt.Fprintf(&script, "code=0; { %s; } >out 2>&1 </dev/null || code=$?; [ $code != 2 ] || { echo 'WRONG: %s'; cat out; }\n",
				line, strings.ReplaceAll(line, "'", `'\''`))
		}
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "sh", "-euc", ". ./setup\n"+script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+"/tools:"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	assert.True(t, err == nil && !strings.Contains(string(out), "WRONG") && ran >= 50, "%d examples, %v:\n%s", ran, err, out)
}

// exampleSetup makes the files that the examples name. The installed policy sets nothing outside the network namespace.
const exampleSetup = `
for at in /etc /var/lib /usr/local/bin /run /mnt; do
	rm -rf scratch; mkdir scratch; [ $at != /etc ] || cp -a /etc/. scratch
	mount -t tmpfs tmpfs $at; cp -a scratch/. $at
done
ip link set lo up
rm -rf /etc/sysctl.d /etc/modules-load.d; mkdir /etc/sysctl.d /etc/modules-load.d
echo net.ipv4.ip_forward=1 >/etc/sysctl.d/k8s.conf; echo overlay >/etc/modules-load.d/k8s.conf
mkdir -p /mnt/image/usr/lib/systemd/system /var/lib/prometheus/node-exporter /etc/nodegate/policy.d policy.d snapshots reports
echo '[Service]' >/mnt/image/usr/lib/systemd/system/kubelet.service
printf 'sysctl "net.ipv4.ip_forward" {\n  value  = 1\n  reason = "r"\n}\ncheck "swap" {}\ngate {\n  unit_absent = "allow"\n}\n' >net.hcl
cp net.hcl /etc/nodegate/policy.d/my.hcl
cp net.hcl policy.d/net.hcl
cp net.hcl new.hcl
nodegate snapshot --policy new.hcl -o node17.json
cp node17.json snapshots/
nodegate check --policy new.hcl -o reports/one.json || :
`
