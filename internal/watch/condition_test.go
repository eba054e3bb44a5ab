package watch_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/kube"
	"nodegate/internal/report"
	"nodegate/internal/watch"
	"nodegate/policy"
)

func TestCondition(t *testing.T) {
	result := func(name string, v checks.Verdict, got string) checks.Result {
		return checks.Result{Name: name, Verdict: v, Metadata: policy.Metadata{Severity: policy.Block}, State: checks.State{Got: got}}
	}
	var many []checks.Result
	for i := range 40 {
		many = append(many, result(fmt.Sprintf("sysctl.net.ipv4.conf.eth%d.rp_filter", i), checks.Fail, "1"))
	}
	for _, test := range []struct {
		what    string
		results []checks.Result
		off     string
		want    kube.Condition
	}{
		{"pass", []checks.Result{result("swap", checks.Pass, "off"), result("mtu", checks.Warn, "9001")}, "",
			kube.Condition{Status: "True", Reason: "Passed", Message: "every requirement of the policy passes"}},
		{"fail", []checks.Result{result("mtu", checks.Unknown, ""), result("sysctl.net.ipv4.ip_forward", checks.Fail, "0"),
			result("swap", checks.Fail, "on")}, "",
			kube.Condition{Status: "False", Reason: "SysctlNetIpv4IpForward", Message: "fails: sysctl.net.ipv4.ip_forward, swap"}},
		{"unknown", []checks.Result{result("mtu", checks.Unknown, "")}, "",
			kube.Condition{Status: "Unknown", Reason: "Mtu", Message: "could not be told: mtu"}},
		{"off", []checks.Result{result("swap", checks.Fail, "on")}, "/etc/nodegate/disabled",
			kube.Condition{Status: "False", Reason: "Swap",
				Message: "nothing is held or corrected, by /etc/nodegate/disabled; fails: swap"}},
	} {
		test.want.Type = "NodegatePassed"
		s := watch.State{Watching: report.Watching{Off: test.off}, Report: checks.Report{Results: test.results}}
		if got := s.Condition("NodegatePassed"); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.what, got, test.want)
		}
		for i := range s.Report.Results {
			s.Report.Results[i].State.Got += " and 7"
		}
		if got := s.Condition("NodegatePassed"); got != test.want {
			t.Errorf("%s: it changes with a value: %+v", test.what, got)
		}
	}
	got := watch.State{Report: checks.Report{Results: many}}.Condition("x").Message
	if len(got) > 255 || !strings.HasSuffix(got, " and more") || !strings.HasPrefix(got, "fails: sysctl.net.ipv4.conf.eth0.rp_filter, ") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
