package watch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/cmd/nodegate/internal/watch"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/kube"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

func TestCondition(t *testing.T) {
	result := func(name string, v verdict.Verdict, got string) checks.Result {
		return checks.Result{Name: name, Verdict: v, Metadata: policy.Metadata{Severity: policy.Block}, State: checks.State{Got: got}}
	}
	follows := result("sysctl.net.bridge.bridge-nf-call-iptables", verdict.Fail, "no such parameter")
	follows.State.Cause = "module.br_netfilter"
	var many []checks.Result
	for i := range 40 {
		many = append(many, result(fmt.Sprintf("sysctl.net.ipv4.conf.eth%d.rp_filter", i), verdict.Fail, "1"))
	}
	for _, test := range []struct {
		what    string
		results []checks.Result
		off     string
		warns   bool
		want    kube.Condition
	}{
		{"pass", []checks.Result{result("swap", verdict.Pass, "off"), result("mtu", verdict.Warn, "9001")}, "", false,
			kube.Condition{Status: "True", Reason: "Passed", Message: "every requirement of the policy passes"}},
		{"fail", []checks.Result{result("mtu", verdict.Unknown, ""), result("sysctl.net.ipv4.ip_forward", verdict.Fail, "0"),
			result("swap", verdict.Fail, "on")}, "", false,
			kube.Condition{Status: "False", Reason: "SysctlNetIpv4IpForward", Message: "fails: sysctl.net.ipv4.ip_forward, swap"}},
		{"unknown", []checks.Result{result("mtu", verdict.Unknown, "")}, "", false,
			kube.Condition{Status: "Unknown", Reason: "Mtu", Message: "unknown: mtu"}},
		{"failures are symptoms of an unknown result", []checks.Result{result("module.br_netfilter", verdict.Unknown, ""), follows}, "", false,
			kube.Condition{Status: "False", Reason: "SysctlNetBridgeBridgeNfCallIptables",
				Message: "fails: sysctl.net.bridge.bridge-nf-call-iptables"}},
		{"what fails follows from what fails", []checks.Result{follows, result("module.br_netfilter", verdict.Fail, "not loaded")}, "", false,
			kube.Condition{Status: "False", Reason: "ModuleBrNetfilter", Message: "fails: module.br_netfilter"}},
		{"off", []checks.Result{result("swap", verdict.Fail, "on")}, "/etc/nodegate/disabled", false,
			kube.Condition{Status: "False", Reason: "Swap",
				Message: "break-glass in force (/etc/nodegate/disabled), nothing is held or corrected; fails: swap"}},
		{"warns, and passes", nil, "", true,
			kube.Condition{Status: "True", Reason: "Passed", Message: "nothing is held (enforce is warn); every requirement of the policy passes"}},
		{"warns, and fails", []checks.Result{result("swap", verdict.Fail, "on")}, "", true,
			kube.Condition{Status: "False", Reason: "Swap", Message: "nothing is held (enforce is warn); fails: swap"}},
	} {
		test.want.Type = "NodegatePassed"
		p := &policy.Policy{}
		if test.warns {
			p.Gate.Enforce = policy.Warn
		}
		s := watch.Status{Watching: report.Watching{BreakGlass: test.off}, Policy: p, Report: checks.Outcome{Results: test.results}}
		assert.Equal(t, s.Condition("NodegatePassed"), test.want, "%s", test.what)
		// A condition from the document that another process reads must be the same.
		now := time.Now()
		s.LastRound, s.Interval = now, time.Minute
		assert.Equal(t, watch.Condition("NodegatePassed", s.Document((&hosttest.Machine{}).Host()), now), test.want, "%s", test.what)
		got := watch.Condition("NodegatePassed", s.Document((&hosttest.Machine{}).Host()), now.Add(time.Hour))
		assert.True(t, got.Status == "Unknown", "%s: an hour later its document says %+v", test.what, got)
		for i := range s.Report.Results {
			s.Report.Results[i].State.Got += " and 7"
		}
		assert.Equal(t, s.Condition("NodegatePassed"), test.want, "%s: it changes with a value", test.what)
	}
	got := watch.Status{Report: checks.Outcome{Results: many}}.Condition("x").Message
	if len(got) > 255 || !strings.HasSuffix(got, " and more") || !strings.HasPrefix(got, "fails: sysctl.net.ipv4.conf.eth0.rp_filter, ") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// TestConditionWithoutReason: a document in which no result explains the verdict does not count as a pass.
func TestConditionWithoutReason(t *testing.T) {
	for verdict, want := range map[verdict.Verdict]kube.Condition{
		verdict.Fail:    {Status: "False", Reason: "Failed", Message: "fails: the report names no check"},
		verdict.Unknown: {Status: "Unknown", Reason: "Unknown", Message: "unknown: the report names no check"},
	} {
		now := time.Now()
		d := report.Watch{Watching: report.Watching{LastRound: now, Interval: time.Minute}, Report: report.Report{Verdict: verdict}}
		assert.Equal(t, watch.Condition("", d, now), want, "%s", verdict)
	}
}
