package checks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

func TestUnknownNeverPasses(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Refuse: map[string]error{"r /proc/sys/kernel/panic": syscall.EIO}}
	p := checkstest.Load(t, `sysctl "kernel.panic" { value = 10 }`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
	if r.Verdict() != verdict.Unknown || !errors.Is(r.Results[0].Err, syscall.EIO) {
		t.Errorf("an unreadable parameter: %v, %v", r.Verdict(), r.Results[0].Err)
	}
	p = checkstest.Load(t, `sysctl "kernel.panic" {
		value = 10
		severity = "warn"
	}`)
	r = checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
	if r.Verdict() != verdict.Pass || r.Results[0].Verdict != verdict.Unknown {
		t.Errorf("an unreadable parameter that only warns: report %v, result %v", r.Verdict(), r.Results[0].Verdict)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m = &hosttest.Machine{Files: map[string]string{}}
	m.Sysctl("kernel/panic", "10")
	r = checks.Inspect(ended, m.Host(), checks.Boot, catalog.For(checkstest.Load(t, `sysctl "kernel.panic" { value = 10 }`), checks.Boot))
	assert.Equal(t, r.Verdict(), verdict.Unknown, "an ended context")
}

// TestUndecided: if another block of the same name may require another value, a pass becomes unknown.
func TestUndecided(t *testing.T) {
	for _, c := range []struct {
		got, other string
		want       verdict.Verdict
	}{
		{"10", "", verdict.Unknown},
		{"10", "  severity = \"warn\"\n", verdict.Pass},
		{"9", "", verdict.Fail},
	} {
		m := &hosttest.Machine{Files: map[string]string{}}
		m.Sysctl("kernel/panic", c.got)
		p := checkstest.Load(t, "sysctl \"kernel.panic\" { value = 10 }\nsysctl \"kernel.panic\" {\n  value = 20\n  when = cni.name == \"x\"\n"+c.other+"}")
		r := checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
		if len(r.Results) != 1 || r.Results[0].Verdict != c.want || r.Verdict() != c.want {
			t.Errorf("it is %s, with another block %q: %v, %+v", c.got, c.other, r.Verdict(), r.Results)
		}
	}
}

// slowRuntime answers only after a rule was tried and a later check of the list has read its file.
type slowRuntime struct {
	host.Runtimes
	others *sync.WaitGroup
}

func (r slowRuntime) CRIVersion(ctx context.Context, socket, api string) (string, error) {
	met := make(chan struct{})
	go func() { r.others.Wait(); close(met) }()
	select {
	case <-met:
		return r.Runtimes.CRIVersion(ctx, socket, api)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

type meetingRules struct {
	host.Rules
	tried func()
}

func (r meetingRules) Takes(ctx context.Context, program, whole string, texts []string) ([]string, error) {
	r.tried()
	return r.Rules.Takes(ctx, program, whole, texts)
}

type meetingFiles struct {
	host.Files
	read func()
}

func (f meetingFiles) ReadFile(name string) ([]byte, error) {
	if name == "/proc/sys/net/ipv4/ip_local_port_range" {
		f.read()
	}
	return f.Files.ReadFile(name)
}

// TestConcurrent: concurrent checks run in parallel, and the results keep the order of the list.
func TestConcurrent(t *testing.T) {
	m := checkstest.Node(map[string]string{
		"/var/lib/kube-proxy/config.conf":        "kind: KubeProxyConfiguration\nmode: iptables\n",
		"/etc/kubernetes/kubelet.conf":           "users: []",
		"/var/lib/kubelet/config.yaml":           "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/crio.sock\n",
		"/proc/sys/net/ipv4/ip_local_port_range": "32768 60999\n",
	}, nil)
	m.Runtime = map[string]string{"v1 /run/crio.sock": "cri-o 1.34.0"}
	m.Lacks = map[string][]string{"iptables-restore": nil, "ip6tables-restore": nil}
	var others sync.WaitGroup
	others.Add(2)
	h := m.Host()
	h.Runtimes = slowRuntime{h.Runtimes, &others}
	h.Rules = meetingRules{h.Rules, sync.OnceFunc(others.Done)}
	h.Files = meetingFiles{h.Files, sync.OnceFunc(others.Done)}
	h, recorded := host.Record(h)
	p := checkstest.Load(t, `
check "kubelet.runtime" {}
check "packetfilter.kernel-can" {}
check "nodeport.overlap" {}
`)
	list := catalog.For(p, checks.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := checks.Inspect(ctx, h, checks.Run, list)
	assert.True(t, r.Verdict() == verdict.Pass, "%+v", r.Results)
	names := func(yield func(string) bool) {
		for _, res := range r.Results {
			yield(res.Name)
		}
	}
	if got := slices.Collect(names); len(got) != 3 || !slices.Equal(got, []string{list[0].Name(), list[1].Name(), list[2].Name()}) {
		t.Errorf("results in the order of %v", got)
	}
	if len(recorded.Answers["conclusions"]) != 2 {
		t.Error("the recording lacks the conclusions of the concurrent checks")
	}
}

// TestTwoBlocks: of two blocks for one problem, the one that applies counts, in either order; then one whose condition is
// unknown. A problem gets only the part of the policy that applies.
func TestTwoBlocks(t *testing.T) {
	problem := checks.Problem{Name: "p", Stages: []checks.Stage{checks.Run},
		Inspect: func(_ context.Context, _ *host.Host, p *policy.Policy) (checks.State, error) {
			return checks.State{Want: "w", Got: fmt.Sprint(len(p.Sysctls))}, nil
		}}
	off, unknown, on := policy.Metadata{Off: true}, policy.Metadata{Unknown: "os.id"}, policy.Metadata{Severity: policy.Warn}
	for _, c := range []struct {
		blocks []policy.Metadata
		want   verdict.Verdict
	}{
		{[]policy.Metadata{off, on}, verdict.Warn}, {[]policy.Metadata{on, off}, verdict.Warn}, {[]policy.Metadata{unknown, on}, verdict.Warn},
		{[]policy.Metadata{off, unknown}, verdict.Unknown}, {[]policy.Metadata{unknown, off}, verdict.Unknown}, {[]policy.Metadata{off}, verdict.Skipped},
	} {
		p := &policy.Policy{Sysctls: []policy.Sysctl{{Metadata: on}, {Metadata: off}}}
		for _, m := range c.blocks {
			p.Problems = append(p.Problems, policy.Problem{Name: "p", Metadata: m})
		}
		r := checks.Inspect(t.Context(), (&hosttest.Machine{}).Host(), checks.Run, checks.Asked([]checks.Problem{problem}, p, checks.Run))
		if len(r.Results) != 1 || r.Results[0].Verdict != c.want || c.want == verdict.Warn && r.Results[0].State.Got != "1" {
			t.Errorf("%+v: %+v", c.blocks, r.Results)
		}
	}
}
