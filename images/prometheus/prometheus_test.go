// Package prometheus tests the alert rules, the dashboard and the metrics with a real Prometheus.
package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// runProgram runs a program to its end and returns its output.
func runProgram(t *testing.T, stdin io.Reader, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	require.True(t, err == nil, "%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	return string(out)
}

func TestRules(t *testing.T) {
	hosttest.NeedProgram(t, "promtool")
	runProgram(t, nil, "promtool", "check", "rules", "nodegate.rules.yaml")
	runProgram(t, nil, "promtool", "test", "rules", "nodegate.rules_test.yaml")
}

// TestRunbooks: every alert has a runbook_url, and the documents have that heading.
func TestRunbooks(t *testing.T) {
	rules := require.ReadFile(t, "nodegate.rules.yaml")
	board := require.ReadFile(t, "nodegate-dashboard.json")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	for _, a := range alerts {
		if url := "docs/troubleshooting.md#" + strings.ToLower(a[1]) + `"`; !strings.Contains(string(rules), url) {
			t.Errorf("%s has no runbook_url %s", a[1], url)
		}
	}
	links := regexp.MustCompile(`https://example\.com/nodegate/([\w/.]+)(?:#(\w+))?`).FindAllStringSubmatch(string(rules)+string(board), -1)
	assert.True(t, len(links) >= len(alerts)+2, "%d links", len(links))
	for _, link := range links {
		text, err := os.ReadFile("../../" + link[1])
		assert.NoError(t, err)
		if link[2] != "" && !regexp.MustCompile(`(?mi)^#+ `+link[2]+`$`).Match(text) {
			t.Errorf("%s has no heading %s", link[1], link[2])
		}
	}
}

// TestDashboard: promtool accepts every expression of the dashboard.
func TestDashboard(t *testing.T) {
	hosttest.NeedProgram(t, "promtool")
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, expr := range dashboardExprs(t) {
		expr = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$cluster", ".*").Replace(expr)
		quoted, err := json.Marshal(expr)
		require.NoError(t, err)
		rules += fmt.Sprintf("  - record: panel:%d\n    expr: %s\n", i, quoted)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o644))
	runProgram(t, nil, "promtool", "check", "rules", file)
}

// dashboardExprs returns the expressions of all panels.
func dashboardExprs(t *testing.T) []string {
	t.Helper()
	text := require.ReadFile(t, "nodegate-dashboard.json")
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	var all []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	require.True(t, len(all) != 0, "no expressions found in the dashboard")
	return all
}

// startProgram runs a program until the test ends.
func startProgram(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, out.String())
		}
	})
}

func fetchURL(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

// eventually calls query until it succeeds, and returns its result.
func eventually(t *testing.T, what string, query func() (string, error)) string {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var got string
		if got, err = query(); err == nil {
			return got
		}
	}
	t.Fatalf("%s: %v", what, err)
	return ""
}

const policy = `
sysctl "net.ipv4.ip_forward" { value = 1 }
sysctl "net.ipv4.conf.all.rp_filter" {
  value = 2
  drift = "report"
}
check "swap" {}
`

// TestScrape: a real Prometheus scrapes a real watch, with the rules loaded.
func TestScrape(t *testing.T) {
	for _, program := range []string{"promtool", "prometheus", "prometheus-node-exporter", "go", "unshare"} {
		hosttest.NeedProgram(t, program)
	}
	if !hosttest.OwnNetns(t) {
		return
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	require.NoError(t, err)
	dir := t.TempDir()
	binary := filepath.Join(dir, "nodegate")
	runProgram(t, nil, "go", "build", "-o", binary, "nodegate/cmd/nodegate")
	rules, err := filepath.Abs("nodegate.rules.yaml")
	require.NoError(t, err)
	for name, text := range map[string]string{
		"node.hcl": policy,
		"prometheus.yml": "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [" + rules + "]\n" +
			"scrape_configs: [{job_name: nodegate, static_configs: [{targets: ['127.0.0.1:9758']}]}]\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	// watch runs in its own mount namespace, to leave the machine's /run/nodegate alone.
	startProgram(t, "unshare", "--mount", "sh", "-euc", `mount -t tmpfs tmpfs /run; exec "$@"`, "sh",
		binary, "watch", "--policy", dir+"/node.hcl", "--interval", "1s", "--listen", "127.0.0.1:9758", "--textfile", dir)
	eventually(t, "watch is healthy", func() (string, error) { return fetchURL(t.Context(), "http://127.0.0.1:9758/healthz") })
	metrics := eventually(t, "metrics", func() (string, error) { return fetchURL(t.Context(), "http://127.0.0.1:9758/metrics") })
	runProgram(t, strings.NewReader(metrics), "promtool", "check", "metrics")
	text, err := os.ReadFile(dir + "/nodegate.prom")
	require.NoError(t, err)
	runProgram(t, strings.NewReader(string(text)), "promtool", "check", "metrics")
	checkKnownMetrics(t, metrics)
	checkNodeExporter(t, binary, dir)

	startProgram(t, "prometheus", "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data", "--web.listen-address=127.0.0.1:9090")
	for expr, want := range map[string]string{
		`up{job="nodegate"}`: `"1"`,
		`nodegate_requirement{name="sysctl.net.ipv4.ip_forward",verdict="pass"}`:         `"1"`,
		`nodegate_requirement{name="sysctl.net.ipv4.conf.all.rp_filter",verdict="fail"}`: `"1"`,
		`nodegate_pass`: `"0"`,
		`ALERTS{alertname="NodegateNodeDiffers",alertstate="pending"}`: `"1"`,
	} {
		eventually(t, expr, func() (string, error) {
			got, err := fetchURL(t.Context(), "http://127.0.0.1:9090/api/v1/query?query="+url.QueryEscape(expr))
			if err == nil && !strings.Contains(got, want+"]") {
				err = fmt.Errorf("got %s, want %s", got, want)
			}
			return got, err
		})
	}
}

// checkNodeExporter checks that node_exporter reads the file of watch beside a file of check.
func checkNodeExporter(t *testing.T, binary, dir string) {
	t.Helper()
	check := exec.CommandContext(t.Context(), binary, "check", "--stage", "run", "--policy", dir+"/node.hcl",
		"--format", "prometheus", "--output", dir+"/check.prom")
	if out, _ := check.CombinedOutput(); check.ProcessState.ExitCode() != 1 { // one sysctl fails
		t.Fatalf("check: exit status %d\n%s", check.ProcessState.ExitCode(), out)
	}
	startProgram(t, "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory="+dir,
		"--web.listen-address=127.0.0.1:9100")
	got := eventually(t, "node_exporter", func() (string, error) { return fetchURL(t.Context(), "http://127.0.0.1:9100/metrics") })
	for _, want := range []string{"\nnode_textfile_scrape_error 0\n", `nodegate_pass{stage="watch"} 0`, `nodegate_pass{stage="run"} 0`} {
		assert.Contains(t, got, want, "node_exporter does not export")
	}
}

// checkKnownMetrics checks that watch exports every metric that the rules and the dashboard use.
func checkKnownMetrics(t *testing.T, metrics string) {
	t.Helper()
	rules := require.ReadFile(t, "nodegate.rules.yaml")
	for _, name := range regexp.MustCompile(`\bnodegate_[a-z_]+`).FindAllString(string(rules)+strings.Join(dashboardExprs(t), "\n"), -1) {
		assert.Contains(t, metrics, "# TYPE "+name+" ", "watch does not export the metric %s", name)
	}
}
