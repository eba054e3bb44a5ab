//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/e2e/qemu"
	"nodegate/internal/require"
)

// keptPolicy contains only an audit block.
const keptPolicy = `
audit {
  kubeconfig = %q
  node       = %q
  every      = %q
}
`

// TestKept runs watch with audits while endpoints change: no finding may appear. Then kube-proxy is cut off from the API: watch must
// report that, and stop reporting once kube-proxy is connected again.
func TestKept(t *testing.T) {
	t.Parallel() // the test mostly waits
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	churn, victim := addServices(t, c)
	backends := []Backend{NFTables}
	if os.Getenv("LONG") != "" {
		backends = Backends()
	}
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			n := addNode(t, c, b)
			k := startKept(t, n, binary, "30s")
			k.untilVerdict("before any change", "pass")
			duringChurn(t, churn, func() {
				before, restarted := churn.Changes(), time.Now()
				for end := time.Now().Add(churnTime(time.Minute)); time.Now().Before(end); time.Sleep(time.Second) {
					_, err := k.passes()
					require.NoError(t, err)
					if time.Since(restarted) > restartEvery {
						restarted = time.Now()
						restartProxy(t, n)
					}
				}
				t.Logf("%d changes: %s; %s", churn.Changes()-before, k.counts(), k.cost())
			})
			k.untilVerdict("after the last change", "pass")
			require.NoError(t, n.CutProxy(t.Context()))
			victim.replaceEndpoints()
			require.NoError(t, victim.Update(t.Context()))
			began := time.Now()
			k.untilVerdict("cut off", "fail")
			t.Logf("reported after %.1f s", time.Since(began).Seconds())
			if said := k.readLog(); !strings.Contains(said, "default/victim") || strings.Contains(said, "churn-") {
				t.Errorf("want findings about default/victim only:\n%s", said)
			}
			require.NoError(t, n.MendProxy(t.Context()))
			began = time.Now()
			k.untilVerdict("and back", "pass")
			t.Logf("passes again after %.1f s; %s", time.Since(began).Seconds(), k.counts())
		})
	}
}

// restartEvery is the interval in which kube-proxy is killed and started again during churn.
const restartEvery = 40 * time.Second

func restartProxy(t *testing.T, n *ProxyNode) {
	t.Helper()
	require.NoError(t, n.SignalProxy(syscall.SIGKILL))
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	require.NoError(t, n.StartProxy(ctx))
}

// kept is a watch with an audit.
type kept struct {
	t      testing.TB
	watch  *qemu.Process
	http   *http.Client
	log    string
	listen string
	began  time.Time
}

func startKept(t testing.TB, n *ProxyNode, binary, every string) *kept {
	t.Helper()
	policy := filepath.Join(n.plane.Dir, n.Name+".hcl")
	require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, keptPolicy, n.plane.ProxyKubeconfig, n.Name, every), 0o644))
	k := &kept{
		t: t, log: filepath.Join(n.plane.Dir, n.Name+"-watch.log"), listen: "127.0.0.1:9758", began: time.Now(),
		http: &http.Client{Transport: &http.Transport{DialContext: n.DialContext}, Timeout: 10 * time.Second},
	}
	var err error
	k.watch, err = n.Start(k.log, nil, binary, "watch", "--policy", policy, "--interval", "10s", "--listen", k.listen,
		"--allow-writable")
	require.NoError(t, err)
	t.Cleanup(func() {
		k.http.CloseIdleConnections()
		_ = k.watch.Signal(syscall.SIGKILL) // an error means that it has already ended
		_ = k.watch.Wait()                  // it was killed, so an error is expected
		if t.Failed() {
			t.Logf("output of watch:\n%s", k.readLog())
		}
	})
	return k
}

func (k *kept) metrics() (string, error) {
	answer, err := k.http.Get("http://" + k.listen + "/metrics")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// verdict returns the verdict of the audit, or "" before the first one.
func (k *kept) verdict() string {
	text, err := k.metrics()
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`nodegate_requirement\{[^}]*name="kubeproxy\.audit"[^}]*verdict="(\w+)"[^}]*\} 1`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// passes reports whether the verdict is pass. A finding is an error.
func (k *kept) passes() (bool, error) {
	v := k.verdict()
	if v == "fail" || v == "warn" {
		return false, Final(fmt.Errorf("a false finding about a healthy kube-proxy (%s):\n%s", v, k.readLog()))
	}
	return v == "pass", nil
}

func (k *kept) untilVerdict(when, want string) {
	k.t.Helper()
	waitUntil(k.t, "verdict "+want+", "+when, func() (bool, error) { return k.verdict() == want, nil })
}

// readLog returns the log of watch.
func (k *kept) readLog() string {
	text, err := os.ReadFile(k.log)
	if err != nil {
		k.t.Fatal(err)
	}
	return string(text)
}

// counts returns the metrics of the audit on one line.
func (k *kept) counts() string {
	text, err := k.metrics()
	if err != nil {
		k.t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "nodegate_audit_"); ok && !strings.HasPrefix(rest, "last") {
			list = append(list, strings.TrimSpace(rest))
		}
	}
	return strings.Join(list, ", ")
}

// cost returns the processor share of watch and its child programs since the start, and its memory.
func (k *kept) cost() string {
	spent, resident := processorTime(k.t, k.watch), resident(k.t, k.watch)
	return fmt.Sprintf("%.2f %% of a processor, %d MiB resident", 100*spent.Seconds()/time.Since(k.began).Seconds(), resident>>20)
}

// processorTime returns the processor time of a process and its reaped children.
func processorTime(t testing.TB, p *qemu.Process) time.Duration {
	t.Helper()
	stat := require.ReadFile(t, fmt.Sprintf("/proc/%d/stat", p.PID()))
	_, rest, _ := strings.Cut(string(stat), ") ")
	const tick = 10 * time.Millisecond // 1/USER_HZ
	var spent time.Duration
	for _, field := range strings.Fields(rest)[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(field)
		require.NoError(t, err)
		spent += time.Duration(n) * tick
	}
	return spent
}

// resident returns the memory of a process in bytes.
func resident(t testing.TB, p *qemu.Process) int {
	t.Helper()
	statm := require.ReadFile(t, fmt.Sprintf("/proc/%d/statm", p.PID()))
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize()
}
