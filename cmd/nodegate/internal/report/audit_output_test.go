package report_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// judged judges a recorded iptables-save output after replacing the first old with new.
func judged(t testing.TB, old, new string) audit.Judgment {
	t.Helper()
	text := require.ReadFile(t, "../../../../internal/audit/proxy/testdata/iptables-save.txt")
	require.True(t, strings.Contains(string(text), old), "%q is not in the save", old)
	set, err := ruleset.Parse("", strings.NewReader(strings.Replace(string(text), old, new, 1)))
	require.NoError(t, err)
	return audit.Judge([]*ruleset.Set{set}, audit.Options{})
}

func TestAuditSummary(t *testing.T) {
	rep := judged(t, "--to-destination 100.96.1.1:80\n", "--to-destination 100.96.1.9:80\n")
	var b strings.Builder
	require.NoError(t, report.AuditSummary(&b, &rep, false))
	const want = `kube-proxy in iptables mode, rules of version 1.31 to 1.37, 9 Service ports

fail: kubeproxy.chain.damaged (prod/np)
  connections to one endpoint of a Service fail, go to another address, or get no answer
  seen:   kube-proxy writes "-A KUBE-SEP-KND7CFLS43625DNG -p tcp -j DNAT --to-destination 100.96.1.1:80" here; this concerns 33.3 % of its connections
  where:  ip nat KUBE-SEP-KND7CFLS43625DNG line 443
  rule:   -A KUBE-SEP-KND7CFLS43625DNG -p tcp -m comment --comment "prod/np" -m tcp -j DNAT --to-destination 100.96.1.9:80
  remedy: restart kube-proxy (rules stay in place): ` + "`" + `kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE` + "`" + `
  ref:    kubernetes pkg/proxy/iptables/proxier.go

SERVICE                       ADDRESS               ALSO                             ENDPOINTS     VERDICT
default/kubernetes:https      10.96.0.1:443/tcp     -                                1             pass
kube-system/kube-dns:dns      10.96.0.10:53/udp     -                                77            pass
kube-system/kube-dns:dns-tcp  10.96.0.10:53/tcp     -                                77            pass
prod/empty                    10.97.80.155:80/tcp   -                                none, reject  pass
prod/export                   10.104.21.207:80/tcp  -                                10            pass
prod/itp                      10.111.71.138:80/tcp  internal Local                   2 local       pass
prod/lb-local                 10.103.37.132:80/tcp  node port 31669, external Local  3, 1 local    pass
prod/np                       10.104.34.55:80/tcp   node port 31137                  3             fail: kubeproxy.chain.damaged
prod/sticky                   10.98.126.252:80/tcp  affinity 10800 s                 2             pass
`
	assert.Equal(t, b.String(), want)
}

// writeTree writes one Service as a tree.
func tree(w io.Writer, rep *audit.Judgment, name string) error {
	one, err := report.OneService(rep, name)
	if err != nil {
		return err
	}
	return report.ServiceTree(w, one)
}

// TestManyServices: of many Services those with a finding are listed, all if asked.
func TestManyServices(t *testing.T) {
	rep := audit.Judgment{}
	for i := range 1000 {
		rep.Services = append(rep.Services, audit.Service{Name: fmt.Sprintf("prod/s%d", i), Verdict: verdict.Pass})
	}
	rep.Services[7].Verdict, rep.Services[7].Findings = verdict.Fail, []string{"kubeproxy.chain.damaged"}
	for all, want := range map[bool]int{false: 1, true: 1000} {
		var b strings.Builder
		require.NoError(t, report.AuditSummary(&b, &rep, all))
		if got := strings.Count(b.String(), "prod/s"); got != want || all == strings.Contains(b.String(), "999 Service ports without a finding") {
			t.Errorf("all %t: %d Services\n%.300s", all, got, b.String())
		}
	}
}

func TestAuditTree(t *testing.T) {
	rep := judged(t, "", "")
	var b strings.Builder
	for _, name := range []string{"prod/lb-local", "prod/empty", "default/kubernetes:https"} {
		require.NoError(t, tree(&b, &rep, name))
	}
	const want = `prod/lb-local (tcp, ip) pass
├─ ClusterIP 10.103.37.132:80/tcp
│  └─ KUBE-SVC-GBS3FQUAWA63ERWZ
│     ├─  33.33 %  100.96.2.1:80  KUBE-SEP-GSUFTNDARKQ3Y45T  (line 698)
│     ├─  33.33 %  100.96.2.2:80  KUBE-SEP-TDMNYC2JX46UMSXO  (line 699)
│     └─  33.33 %  100.96.2.3:80  KUBE-SEP-5BHYLYEIT5ZP2NDO  (line 700)
└─ node port 31669 (policy Local)
   ├─ from this node and its pods
   │  └─ KUBE-SVC-GBS3FQUAWA63ERWZ
   │     ├─  33.33 %  100.96.2.1:80  KUBE-SEP-GSUFTNDARKQ3Y45T  (line 698)
   │     ├─  33.33 %  100.96.2.2:80  KUBE-SEP-TDMNYC2JX46UMSXO  (line 699)
   │     └─  33.33 %  100.96.2.3:80  KUBE-SEP-5BHYLYEIT5ZP2NDO  (line 700)
   └─ from elsewhere
      └─ KUBE-SVL-GBS3FQUAWA63ERWZ
         └─ 100.00 %  100.96.2.1:80  KUBE-SEP-GSUFTNDARKQ3Y45T  (line 797)
prod/empty (tcp, ip) pass
└─ ClusterIP 10.97.80.155:80/tcp: reject
default/kubernetes:https (tcp, ip) pass
└─ ClusterIP 10.96.0.1:443/tcp
   └─ KUBE-SVC-NPX46M4PTMTKRN6Y
      └─ 100.00 %  10.0.0.5:6443  KUBE-SEP-LGAKEG2JTP62DLLW  (line 707)
`
	assert.Equal(t, b.String(), want)
	err := tree(io.Discard, &rep, "prod/nothing")
	assert.True(t, err != nil, "no error for a Service that does not exist")
	b.Reset()
	err = tree(&b, &rep, "kube-system/kube-dns")
	assert.True(t, err == nil && strings.Count(b.String(), "ClusterIP") == 2, "both ports of kube-dns: %v\n%s", err, b.String())
}

// A comment in a rule must not control a terminal.
func TestNoEscapes(t *testing.T) {
	rep := judged(t, "\"prod/np cluster IP", "\"prod/\x1b[31mnp cluster IP")
	var b strings.Builder
	require.NoError(t, report.AuditSummary(&b, &rep, false))
	assert.True(t, !strings.Contains(b.String(), "\x1b"), "an escape sequence was not removed:\n%q", b.String())
}

// FuzzAuditOutput: no text in a rule makes a renderer panic, or reaches a terminal unescaped.
func FuzzAuditOutput(f *testing.F) {
	f.Add("prod/np", "prod/\x1b[31mnp")
	f.Add("--to-destination 100.96.1.1:80", "--to-destination \xff")
	f.Fuzz(func(t *testing.T, old, new string) {
		text := require.ReadFile(t, "../../../../internal/audit/proxy/testdata/iptables-save.txt")
		set, err := ruleset.Parse("", strings.NewReader(strings.ReplaceAll(string(text), old, new)))
		if err != nil {
			return
		}
		rep := audit.Judge([]*ruleset.Set{set}, audit.Options{})
		var b strings.Builder
		require.NoError(t, report.AuditSummary(&b, &rep, true))
		for _, s := range rep.Services {
			require.NoError(t, tree(&b, &rep, s.Name))
		}
		assert.True(t, !strings.Contains(b.String(), "\x1b"), "an escape sequence was not removed: %q", b.String())
	})
}
