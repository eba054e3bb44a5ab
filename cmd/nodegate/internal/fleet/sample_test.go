package fleet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/require"
)

type result map[string]string

// reportOf returns the JSON of one node's report, as nodegate check writes it.
func reportOf(t testing.TB, node, stage string, results ...result) string {
	t.Helper()
	verdict := "pass"
	for _, r := range results {
		if r["verdict"] == "fail" {
			verdict = "fail"
		}
		if r["verdict"] == "unknown" && verdict == "pass" {
			verdict = "unknown"
		}
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "nodegate/v1", "kind": "Report", "node": map[string]string{"name": node}, "stage": stage,
		"verdict": verdict, "time": "2026-11-20T10:00:00.000Z", "results": results,
	})
	require.NoError(t, err)
	return string(text) + "\n"
}

func pass(name, got string) result {
	return result{"name": name, "verdict": "pass", "severity": "block", "got": got}
}

func fail(name, got string) result {
	return result{"name": name, "verdict": "fail", "severity": "block", "got": got, "remedy": "run: mend " + name}
}

func because(r result, cause string) result { r["because"] = cause; return r }

// merged decodes and merges reports.
func merged(t testing.TB, reports ...string) fleet.Fleet {
	t.Helper()
	read, err := report.Decode("all.json", strings.NewReader(strings.Join(reports, "")))
	require.NoError(t, err)
	f, errs := fleet.Merge(read)
	require.NoError(t, errors.Join(errs...))
	return f
}

// farm returns the reports of many nodes with many checks. One node lacks a module (and two sysctls with it), one has another value, two
// are unknown; every node has its own count of connections.
func farm(t testing.TB, nodes, checks int) []string {
	t.Helper()
	var all []string
	for n := range nodes {
		module := pass("module.br_netfilter", "loaded")
		call, call6 := pass("sysctl.net.bridge.bridge-nf-call-iptables", "1"), pass("sysctl.net.bridge.bridge-nf-call-ip6tables", "1")
		if n == 17 {
			module = fail("module.br_netfilter", "not loaded")
			call = because(fail("sysctl.net.bridge.bridge-nf-call-iptables", "absent"), "module.br_netfilter")
			call6 = because(fail("sysctl.net.bridge.bridge-nf-call-ip6tables", "absent"), "module.br_netfilter")
		}
		backlog := pass("sysctl.net.core.somaxconn", "4096")
		if n == 5 {
			backlog = pass("sysctl.net.core.somaxconn", "128")
		}
		forward := pass("sysctl.net.ipv4.ip_forward", "1")
		if n == 3 || n == 9 {
			forward = result{"name": "sysctl.net.ipv4.ip_forward", "verdict": "unknown", "severity": "block",
				"error": "reading sysctl: permission denied"}
		}
		swap := result{"name": "kubelet.cgroup-v1", "verdict": "warn", "severity": "warn", "got": "v1", "remedy": "boot with cgroup v2"}
		results := []result{module, call, call6, backlog, forward, swap, pass("conntrack.headroom", fmt.Sprintf("%d of 262144", 100+n))}
		for c := len(results); c < checks; c++ {
			results = append(results, pass(fmt.Sprintf("sysctl.filler.%d", c), "1"))
		}
		all = append(all, reportOf(t, fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", n/256, n%256), "boot", results...))
	}
	return all
}
