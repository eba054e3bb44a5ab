package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"nodegate/checks/catalog"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// contract is the file with everything that scripts and other tools rely on: the names of
// checks, the flags, the fields of each document, and exit codes.
const contract = "../cmd/nodegate/testdata/contract.golden"

// TestContract compares this program with the contract of earlier versions. UPDATE=1 adds lines to the file; no line may be removed.
func TestContract(t *testing.T) {
	c := newContractor(t, "")
	c.names()
	c.flags("nodegate")
	c.add("flag nodegate publish") // hidden, but DaemonSets of earlier versions call it
	c.flags("nodegate publish")
	c.inputs()
	for _, call := range []struct{ situation, line string }{
		{"check broken", "check --policy node.hcl --snapshot broken.json"},
		{"check broken stage", "check --policy node.hcl --snapshot broken.json --stage later"},
		{"check passing", "check --policy panic.hcl --snapshot broken.json"},
		{"check warning", "check --policy warn.hcl --snapshot broken.json"},
		{"check unknown", "check --policy other.hcl --snapshot broken.json"},
		{"check no snapshot", "check --snapshot node.hcl"},
		{"check wrong flag", "check --polcy x"},
		{"plan in a tree", "plan --root . --policy panic.hcl"},
		{"apply in a tree", "apply --root . --policy panic.hcl"},
		{"lint", "lint node.hcl"},
		{"lint mistake", "lint wrong.hcl"},
		{"lint strict", "lint --strict node.hcl"},
		{"fmt", "fmt --check panic.hcl"},
		{"fmt would change", "fmt --check ugly.hcl"},
		{"explain nothing", "explain nosuch"},
		{"audit healthy", "audit --rules rules.txt"},
		{"audit broken", "audit --rules broken.txt"},
		{"audit without rules", "audit --rules empty.txt"},
		{"audit no rules", "audit --rules node.hcl"},
		{"audit missing rules", "audit --rules nosuch.txt"},
		{"audit one Service that is missing", "audit --rules rules.txt --service prod/nosuch"},
		{"probe service nonsense", "probe service nonsense"},
		{"probe service wrong count", "probe service 127.0.0.1:1 -n 0"},
		{"report passing", "report pass.json"},
		{"report failing", "report pass.json fail.json"},
		{"report unknown", "report pass.json unknown.json"},
		{"report no report", "report pass.json node.hcl"},
		{"status missing", "status --file nosuch.json"},
		{"status of another kind", "status --file pass.json"},
		{"status late", "status --file late.json"},
		{"export unknown", "export nosuch"},
		{"watch wrong interval", "watch --interval 1ms"},
	} {
		_, code := c.run(strings.Fields(call.line)...)
		c.add("exit %s: %d", call.situation, code)
	}
	c.fields("check", "check", "--policy", "node.hcl", "--snapshot", "broken.json", "--format", "json")
	c.fields("check", "check", "--policy", "skip.hcl", "--snapshot", "broken.json", "--format", "json")
	c.fields("audit", "audit", "--rules", "broken.txt", "--format", "json")
	c.fields("report", "report", "pass.json", "fail.json", "unknown.json", "--format", "json")
	c.fields("snapshot", "snapshot", "--policy", "node.hcl")
	c.compare()
}

// TestContractAsRoot does the same for calls that need a machine.
func TestContractAsRoot(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	hosttest.NeedProgram(t, "ip")
	c := newContractor(t, asRoot)
	c.inputs()
	for _, call := range []struct{ situation, line string }{
		{"plan of a change", "plan --policy forward.hcl"},
		{"plan without a change", "plan --policy passing.hcl"},
		{"plan unknown", "plan --policy unreadable.hcl"},
		{"apply dry run", "apply --dry-run --policy forward.hcl"},
		{"apply", "apply --policy forward.hcl"},
		{"apply unknown", "apply --policy unreadable.hcl"},
		{"gate held", "gate --budget 10ms --policy hold.hcl"},
		{"gate released", "gate --budget 10ms --policy release.hcl"},
		{"gate repaired", "gate --budget 5s --policy forward.hcl"},
		{"gate unknown", "gate --budget 10ms --policy unreadable.hcl"},
		{"gate without a policy", "gate --budget 10ms --policy wrong.hcl"},
		{"probe service failing", "probe service 127.0.0.1:1 -n 2 --attempt-timeout 100ms"},
	} {
		_, code := c.scratch("nodegate " + call.line)
		c.add("exit %s: %d", call.situation, code)
	}
	for document, script := range map[string]string{
		"apply":         "nodegate apply --policy forward.hcl --format json",
		"gate":          "nodegate gate --budget 10ms --policy hold.hcl || cat /run/nodegate/report.json",
		"change":        "nodegate apply --policy forward.hcl >&2; tail -n 1 /run/nodegate/changes.jsonl",
		"status":        "timeout 2 nodegate watch --policy forward.hcl --interval 1s || :; nodegate status --format json",
		"probe service": "nodegate probe service 127.0.0.1:1 -n 2 --attempt-timeout 100ms --format json",
		"probe bridge":  "echo 1 >/proc/sys/net/ipv4/ip_forward; nodegate probe bridge --timeout 300ms --format json",
	} {
		out, _ := c.scratch(script)
		c.document(document, out)
	}
	c.compare()
}

// contractor collects the lines of the contract.
type contractor struct {
	*testing.T
	dir    string
	prefix string // the prefix of its lines
	lines  map[string]bool
}

// asRoot is the prefix of the lines that only root can compare.
const asRoot = "as root: "

func newContractor(t *testing.T, prefix string) *contractor {
	needNodegate(t)
	return &contractor{t, t.TempDir(), prefix, map[string]bool{}}
}

func (c *contractor) add(format string, args ...any) {
	c.lines[c.prefix+fmt.Sprintf(format, args...)] = true
}

// run runs nodegate.
func (c *contractor) run(args ...string) (stdout []byte, code int) {
	return c.exec("nodegate", args...)
}

// scratch runs a script of root in a mount and a network namespace, where /run is empty and the settings are those of a new kernel.
func (c *contractor) scratch(script string) (stdout []byte, code int) {
	c.Helper()
	return c.exec("unshare", "--mount", "--net", "sh", "-euc", `mount -t tmpfs tmpfs /run
		[ ! -e /dev/console ] || mount --bind /dev/null /dev/console
		ip link set lo up; echo 0 >/proc/sys/net/ipv4/ip_forward; `+script)
}

func (c *contractor) exec(name string, args ...string) (stdout []byte, code int) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.dir
	stdout, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		c.Fatal(err)
	}
	return stdout, cmd.ProcessState.ExitCode()
}

// names adds the names of all checks, and of the problems that a policy's check block can name.
func (c *contractor) names() {
	for _, name := range catalog.Known().Checks {
		c.add("problem %s", name)
	}
	for former := range catalog.Renamed() { // an alias keeps the promise
		c.add("problem %s", former)
	}
	all, err := catalog.Explain()
	require.NoError(c, err)
	for _, e := range all {
		c.add("check %s", e.Name)
	}
}

// flags adds the flags of a command and of those below it, as its help lists them.
func (c *contractor) flags(command string) {
	out, _ := c.run(append(strings.Fields(command)[1:], "--help")...)
	for _, m := range regexp.MustCompile(`(?m)^  +(?:(-\w), )?(--[a-z-]+)`).FindAllSubmatch(out, -1) {
		c.add("flag %s %s", command, strings.TrimSpace(string(m[2])+" "+string(m[1])))
	}
	for _, list := range regexp.MustCompile(`(?m)^[A-Z]\w+ Commands:\n((?:  .*\n)+)`).FindAllSubmatch(out, -1) {
		for line := range bytes.Lines(list[1]) {
			if name := string(bytes.Fields(line)[0]); name != "help" && name != "completion" {
				c.add("flag %s %s", command, name)
				c.flags(command + " " + name)
			}
		}
	}
}

// fields adds the fields of the document that a call writes.
func (c *contractor) fields(document string, args ...string) {
	out, _ := c.run(args...)
	c.document(document, out)
}

func (c *contractor) document(name string, text []byte) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		c.Errorf("%s: %v\n%s", name, err, text)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, below := range v {
				if strings.ContainsAny(key, "./") {
					key = "*" // a name or a path, not a field
				}
				walk(path+"."+key, below)
			}
		case []any:
			for _, below := range v {
				walk(path+"[]", below)
			}
			if len(v) == 0 {
				c.add("field %s %s[]", name, path)
			}
		default:
			c.add("field %s %s", name, path)
		}
	}
	walk("", v)
}

// inputs writes the files that the calls read.
func (c *contractor) inputs() {
	write := func(name, text string) {
		require.NoError(c, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644))
	}
	script, err := txtar.ParseFile("../cmd/nodegate/testdata/check.txtar")
	require.NoError(c, err)
	for _, f := range script.Files {
		write(f.Name, string(f.Data))
	}
	rules := require.ReadFile(c, "../internal/audit/proxy/testdata/iptables-save.txt")
	const report = `{"apiVersion": "nodegate/v1", "kind": "Report", "node": {"name": "%s"}, "stage": "boot", "verdict": "%[1]s",
		"time": "2026-01-01T10:00:00.000Z", "results": [
		{"name": "module.x", "verdict": "%[1]s", "severity": "block", "got": "x", "error": "e", "remedy": "mend it"},
		{"name": "sysctl.x", "verdict": "%[1]s", "severity": "block", "got": "x", "because": "%[2]s"}]}`
	for name, text := range map[string]string{
		"panic.hcl":   "sysctl \"kernel.panic\" {\n  value = 10\n}\n",
		"ugly.hcl":    `sysctl "kernel.panic"   { value=10 }`,
		"wrong.hcl":   `sysctrl "kernel.panic" { value = 10 }`,
		"warn.hcl":    "sysctl \"kernel.panic\" {\n  value = 1\n  severity = \"warn\"\n}\n",
		"skip.hcl":    "sysctl \"kernel.panic\" {\n  value = 10\n  when = false\n}\n",
		"forward.hcl": "sysctl \"net.ipv4.ip_forward\" {\n  value = 1\n  reason = \"r\"\n  ref = \"s\"\n}\ngate { interval = \"100ms\" }\n",
		"hold.hcl":    "sysctl \"net.ipv4.ip_forward\" { value = 1 }\ngate {\n  repair = false\n  interval = \"100ms\"\n}\n",
		"release.hcl": "sysctl \"net.ipv4.ip_forward\" { value = 1 }\n" +
			"gate {\n  repair = false\n  interval = \"100ms\"\n  on_timeout = \"release\"\n}\n",
		"unreadable.hcl": "sysctl \"net.ipv4.route.flush\" { value = 1 }\ngate {\n  repair = false\n  interval = \"100ms\"\n}\n",
		"passing.hcl":    "sysctl \"net.ipv4.ip_forward\" { value = 0 }\n",
		"rules.txt":      string(rules),
		"broken.txt":     regexp.MustCompile(`--probability 0\.3333\d*`).ReplaceAllString(string(rules), "--probability 0.90000000000"),
		"empty.txt":      "",
		"pass.json":      fmt.Sprintf(report, "pass", ""),
		"fail.json":      fmt.Sprintf(report, "fail", "module.x"),
		"unknown.json":   fmt.Sprintf(report, "unknown", "module.x"),
		"late.json": `{"apiVersion": "nodegate/v1", "kind": "Watch", "since": "2026-01-01T10:00:00Z", "intervalNs": 30000000000,
			"lastRound": "2026-01-01T11:59:50Z", "report": ` + fmt.Sprintf(report, "pass", "") + "}",
	} {
		write(name, text)
	}
}

// compare fails for each line of the contract that this program does not keep.
func (c *contractor) compare() {
	text := require.ReadFile(c, contract)
	kept := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, asRoot) != (c.prefix == asRoot):
			c.lines[line] = true // belongs to the other test
		case c.lines[line]:
			kept++
		default:
			c.Errorf("promised, and not so any more: %s", line)
			c.lines[line] = true
		}
	}
	if kept == 0 {
		c.Error("nothing was compared")
	}
	if os.Getenv("UPDATE") == "" {
		return
	}
	all := strings.Join(slices.Sorted(maps.Keys(c.lines)), "\n") + "\n"
	require.NoError(c, os.WriteFile(contract, []byte(all), 0o644))
}
