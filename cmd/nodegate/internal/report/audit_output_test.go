package report_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/proxyrules"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// judged judges a recorded save in which the first old is replaced by new.
func judged(t testing.TB, old, new string) proxyrules.Judgment {
	t.Helper()
	text, err := os.ReadFile("../../../../internal/proxyrules/testdata/iptables-save.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%q is not in the save", old)
	}
	set, err := ruleset.Parse("", strings.NewReader(strings.Replace(string(text), old, new, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return proxyrules.Judge([]*ruleset.Set{set}, proxyrules.Options{})
}

func TestAuditSummary(t *testing.T) {
	rep := judged(t, "--to-destination 100.96.1.1:80\n", "--to-destination 100.96.1.9:80\n")
	var b strings.Builder
	if err := report.AuditSummary(&b, &rep, false); err != nil {
		t.Fatal(err)
	}
	const want = `kube-proxy in iptables mode, rules of version 1.31 to 1.37, 9 Service ports

fail: kubeproxy.endpoint.dnat (prod/np)
  connections meant for one endpoint of a Service go nowhere, or to another address
  seen:   KUBE-SEP-KND7CFLS43625DNG is the chain of 100.96.1.1:80, but it translates to 100.96.1.9:80
  where:  ip nat KUBE-SEP-KND7CFLS43625DNG line 443
  rule:   -A KUBE-SEP-KND7CFLS43625DNG -p tcp -m comment --comment "prod/np" -m tcp -j DNAT --to-destination 100.96.1.9:80
  remedy: restart kube-proxy, which rewrites every rule (those that are there go on working meanwhile): kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE
  ref:    kubernetes pkg/proxy/iptables/proxier.go

SERVICE                       ADDRESS               ALSO                             ENDPOINTS     VERDICT
default/kubernetes:https      10.96.0.1:443/tcp     -                                1             pass
kube-system/kube-dns:dns      10.96.0.10:53/udp     -                                77            pass
kube-system/kube-dns:dns-tcp  10.96.0.10:53/tcp     -                                77            pass
prod/empty                    10.97.80.155:80/tcp   -                                none, reject  pass
prod/export                   10.104.21.207:80/tcp  -                                10            pass
prod/itp                      10.111.71.138:80/tcp  internal Local                   2 local       pass
prod/lb-local                 10.103.37.132:80/tcp  node port 31669, external Local  3, 1 local    pass
prod/np                       10.104.34.55:80/tcp   node port 31137                  3             fail: kubeproxy.endpoint.dnat
prod/sticky                   10.98.126.252:80/tcp  affinity 10800 s                 2             pass
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// tree writes one Service as a tree.
func tree(w io.Writer, rep *proxyrules.Judgment, name string) error {
	one, err := report.OneService(rep, name)
	if err != nil {
		return err
	}
	return report.ServiceTree(w, one)
}

// TestServiceSVG: the drawing is XML, has every line of the tree, and a box lies in it.
func TestServiceSVG(t *testing.T) {
	rep := judged(t, "", "")
	one, err := report.OneService(&rep, "prod/lb-local")
	if err != nil {
		t.Fatal(err)
	}
	one.Services[0].ExternalIPs = []string{`<script>"&`}
	var drawn, text strings.Builder
	if err := errors.Join(report.ServiceSVG(&drawn, one), report.ServiceTree(&text, one)); err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Width  int `xml:"width,attr"`
		Height int `xml:"height,attr"`
		Boxes  []struct {
			Rect struct {
				X int `xml:"x,attr"`
				Y int `xml:"y,attr"`
				W int `xml:"width,attr"`
				H int `xml:"height,attr"`
			} `xml:"rect"`
			Text string `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal([]byte(drawn.String()), &svg); err != nil {
		t.Fatalf("%v\n%s", err, drawn.String())
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(svg.Boxes) != len(lines) {
		t.Fatalf("%d boxes for %d lines", len(svg.Boxes), len(lines))
	}
	for i, box := range svg.Boxes {
		if !strings.HasSuffix(lines[i], strings.TrimSpace(box.Text)) {
			t.Errorf("box %d is %q, the line %q", i, box.Text, lines[i])
		}
		if box.Rect.X < 0 || box.Rect.X+box.Rect.W > svg.Width || box.Rect.Y+box.Rect.H > svg.Height {
			t.Errorf("box %d lies outside: %+v in %d x %d", i, box.Rect, svg.Width, svg.Height)
		}
	}
}

// TestManyServices: of many Services those with a finding are listed, all if asked.
func TestManyServices(t *testing.T) {
	rep := proxyrules.Judgment{}
	for i := range 1000 {
		rep.Services = append(rep.Services, proxyrules.Service{Name: fmt.Sprintf("prod/s%d", i), Verdict: verdict.Pass})
	}
	rep.Services[7].Verdict, rep.Services[7].Findings = verdict.Fail, []string{"kubeproxy.dispatch.empty"}
	for all, want := range map[bool]int{false: 1, true: 1000} {
		var b strings.Builder
		if err := report.AuditSummary(&b, &rep, all); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(), "prod/s"); got != want || all == strings.Contains(b.String(), "999 Service ports without a finding") {
			t.Errorf("all %t: %d Services\n%.300s", all, got, b.String())
		}
	}
}

func TestAuditTree(t *testing.T) {
	rep := judged(t, "", "")
	var b strings.Builder
	for _, name := range []string{"prod/lb-local", "prod/empty", "default/kubernetes:https"} {
		if err := tree(&b, &rep, name); err != nil {
			t.Fatal(err)
		}
	}
	const want = `prod/lb-local (tcp, ip) pass
├─ ClusterIP 10.103.37.132:80/tcp (masqueraded: not from 100.96.0.0/11)
│  └─ KUBE-SVC-GBS3FQUAWA63ERWZ
│     ├─  33.33 %  100.96.2.1:80  KUBE-SEP-GSUFTNDARKQ3Y45T  (line 698)
│     ├─  33.33 %  100.96.2.2:80  KUBE-SEP-TDMNYC2JX46UMSXO  (line 699)
│     └─  33.33 %  100.96.2.3:80  KUBE-SEP-5BHYLYEIT5ZP2NDO  (line 700)
└─ node port 31669/tcp (policy Local)
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
└─ ClusterIP 10.96.0.1:443/tcp (masqueraded: not from 100.96.0.0/11)
   └─ KUBE-SVC-NPX46M4PTMTKRN6Y
      └─ 100.00 %  10.0.0.5:6443  KUBE-SEP-LGAKEG2JTP62DLLW  (line 707)
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := tree(io.Discard, &rep, "prod/nothing"); err == nil {
		t.Error("no error for a Service that is not there")
	}
	b.Reset()
	if err := tree(&b, &rep, "kube-system/kube-dns"); err != nil || strings.Count(b.String(), "ClusterIP") != 2 {
		t.Errorf("both ports of kube-dns: %v\n%s", err, b.String())
	}
}

// A comment in a rule must not steer a terminal.
func TestNoEscapes(t *testing.T) {
	rep := judged(t, "\"prod/np cluster IP", "\"prod/\x1b[31mnp cluster IP")
	var b strings.Builder
	if err := report.AuditSummary(&b, &rep, false); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("an escape sequence went through:\n%q", b.String())
	}
}

// FuzzAuditOutput: no text of a rule makes a renderer panic or reach a terminal raw.
func FuzzAuditOutput(f *testing.F) {
	f.Add("prod/np", "prod/\x1b[31mnp")
	f.Add("--to-destination 100.96.1.1:80", "--to-destination \xff")
	f.Fuzz(func(t *testing.T, old, new string) {
		text, err := os.ReadFile("../../../../internal/proxyrules/testdata/iptables-save.txt")
		if err != nil {
			t.Fatal(err)
		}
		set, err := ruleset.Parse("", strings.NewReader(strings.ReplaceAll(string(text), old, new)))
		if err != nil {
			return
		}
		rep := proxyrules.Judge([]*ruleset.Set{set}, proxyrules.Options{})
		var b strings.Builder
		if err := report.AuditSummary(&b, &rep, true); err != nil {
			t.Fatal(err)
		}
		for _, s := range rep.Services {
			if err := tree(&b, &rep, s.Name); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("an escape sequence went through: %q", b.String())
		}
	})
}
