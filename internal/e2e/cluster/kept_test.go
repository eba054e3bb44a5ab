//go:build cluster

package cluster

import (
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

	"nodegate/internal/host/qemu"
)

// keptPolicy only audits.
const keptPolicy = `
audit {
  kubeconfig = %q
  node       = %q
  every      = %q
}
`

// TestKept lets watch audit nodes while endpoints change. Nobody is accused. Then kube-proxy is cut off from the API: watch says
// so by itself, and no longer once it is back.
func TestKept(t *testing.T) {
	c, binary := plane(t, Newest, ForRules()), nodegate(t)
	churn, victim := motion(t, c)
	backends := []Backend{NFTables}
	if os.Getenv("LONG") != "" {
		backends = Backends()
	}
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			n := addNode(t, c, b)
			k := keep(t, n, binary, "30s")
			k.until("before any change", "pass")
			inMotion(t, churn, func() {
				before := churn.Changes()
				for end := time.Now().Add(length(time.Minute)); time.Now().Before(end); time.Sleep(time.Second) {
					if _, err := k.passes(); err != nil {
						t.Fatal(err)
					}
				}
				t.Logf("%d changes: %s; %s", churn.Changes()-before, k.counts(), k.cost())
			})
			k.until("after the last change", "pass")
			if err := n.CutProxy(t.Context()); err != nil {
				t.Fatal(err)
			}
			victim.change()
			if err := victim.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			k.until("cut off", "fail")
			t.Logf("found after %.1f s", time.Since(began).Seconds())
			if said := k.said(); !strings.Contains(said, "default/victim") || strings.Contains(said, "churn-") {
				t.Errorf("want default/victim accused, and nobody else:\n%s", said)
			}
			if err := n.MendProxy(t.Context()); err != nil {
				t.Fatal(err)
			}
			began = time.Now()
			k.until("and back", "pass")
			t.Logf("passes again after %.1f s; %s", time.Since(began).Seconds(), k.counts())
		})
	}
}

// kept is a watch that audits.
type kept struct {
	t     testing.TB
	watch *qemu.Process
	http  *http.Client
	log   string
	began time.Time
}

func keep(t testing.TB, n *ProxyNode, binary, every string) *kept {
	t.Helper()
	policy := filepath.Join(n.plane.Dir, n.Name+".hcl")
	if err := os.WriteFile(policy, fmt.Appendf(nil, keptPolicy, n.plane.ProxyKubeconfig, n.Name, every), 0o644); err != nil {
		t.Fatal(err)
	}
	k := &kept{
		t: t, log: filepath.Join(n.plane.Dir, n.Name+"-watch.log"), began: time.Now(),
		http: &http.Client{Transport: &http.Transport{DialContext: n.DialContext}, Timeout: 10 * time.Second},
	}
	var err error
	k.watch, err = n.Start(k.log, nil, binary, "watch", "--policy", policy, "--interval", "10s", "--listen", "127.0.0.1:9758",
		"--allow-writable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.http.CloseIdleConnections()
		_ = k.watch.Signal(syscall.SIGKILL) // an error means that it is gone
		_ = k.watch.Wait()                  // it was killed: that is no news
		if t.Failed() {
			t.Logf("watch says:\n%s", k.said())
		}
	})
	return k
}

func (k *kept) metrics() (string, error) {
	answer, err := k.http.Get("http://127.0.0.1:9758/metrics")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// verdict returns the audit's, "" where there is none yet.
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

// passes reports whether the verdict is pass. An accusation is an error.
func (k *kept) passes() (bool, error) {
	v := k.verdict()
	if v == "fail" || v == "warn" {
		return false, Final(fmt.Errorf("a healthy kube-proxy is accused (%s):\n%s", v, k.said()))
	}
	return v == "pass", nil
}

func (k *kept) until(when, want string) {
	k.t.Helper()
	until(k.t, "verdict "+want+", "+when, func() (bool, error) { return k.verdict() == want, nil })
}

// said is what watch has logged.
func (k *kept) said() string {
	text, err := os.ReadFile(k.log)
	if err != nil {
		k.t.Fatal(err)
	}
	return string(text)
}

// counts are the audit's metrics, in one line.
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

// cost is watch's share of a processor since it started, with the programs that it ran, and its memory.
func (k *kept) cost() string {
	spent, resident := processorTime(k.t, k.watch), resident(k.t, k.watch)
	return fmt.Sprintf("%.2f %% of a processor, %d MiB resident", 100*spent.Seconds()/time.Since(k.began).Seconds(), resident>>20)
}

// processorTime is what a process has used, and the children that it has waited for.
func processorTime(t testing.TB, p *qemu.Process) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	const tick = 10 * time.Millisecond // of USER_HZ
	var spent time.Duration
	for _, field := range strings.Fields(rest)[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		spent += time.Duration(n) * tick
	}
	return spent
}

// resident is the memory of a process, in bytes.
func resident(t testing.TB, p *qemu.Process) int {
	t.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// peak is the most memory that a process has had, in bytes.
func peak(t testing.TB, p *qemu.Process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kB, err := strconv.Atoi(strings.Fields(rest + " none")[0])
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}
