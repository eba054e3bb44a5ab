package report

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

func held() Report {
	r := Report{APIVersion: APIVersion, Kind: KindReport, Node: Node{Name: "node-1", Kernel: "6.1.0"},
		Policy: Policy{Files: []string{"a.hcl"}},
		Stage:  "boot", Verdict: verdict.Fail, Time: "2026-01-02T03:04:05.000Z", DurationMs: 12}
	for i := range 60 {
		v := verdict.Pass
		if i%4 == 0 {
			v = verdict.Fail
		}
		r.Results = append(r.Results, Result{Name: fmt.Sprintf("sysctl.net.ipv4.conf.eth%d.rp_filter", i), Verdict: v, Severity: policy.Block,
			Want: "0", Got: fmt.Sprint(rand.Int64()), Source: "a.hcl:7", Remedy: "run: sysctl -w x=0"})
	}
	return r
}

// among mixes lines with other console output.
func among(lines []string) string {
	var b strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&b, "[%5d.123456] usb 1-1: new device\r\n\r\n%s\r\n\x1b[0;32m  OK  \x1b[0m] Started something.\r\n", i, l)
	}
	return b.String()
}

func TestConsoleReport(t *testing.T) {
	r := held()
	lines, err := ConsoleReport(r)
	require.NoError(t, err)
	require.True(t, len(lines) >= 3, "%d lines are too few for this test", len(lines))
	want, err := unpackAll(lines)
	require.NoError(t, err)
	assert.True(t, len(want.Results) == 15 && want.Results[1].Got == r.Results[4].Got && want.Node == r.Node && want.Verdict == verdict.Fail,
		"got %+v", want)
	for what, text := range map[string]string{
		"mixed": among(lines), "twice": among(append(lines, lines...)), "other order": among(append(lines[1:], lines[0])),
		"two copies with different gaps": among(lines[1:]) + among(lines[:1]),
	} {
		got, err := DecodeConsole("console", strings.NewReader(text))
		assert.True(t, err == nil && len(got) == 1 && cmp.Diff(want, got[0].Report) == "", "%s: %v, %v", what, got, err)
	}
	for what, text := range map[string]string{
		"cut": among(lines[:len(lines)-1]), "torn": strings.Replace(among(lines), lines[1], lines[1][:40]+"[  1.2] oops\r\n"+lines[1][40:], 1),
		"nothing": "Debian GNU/Linux 12 node-1 ttyS0\r\n",
	} {
		if got, err := DecodeConsole("console", strings.NewReader(text)); err == nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}

func unpackAll(lines []string) (Report, error) {
	got, err := DecodeConsole("console", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		return Report{}, err
	}
	return got[0].Report, nil
}

// TestConsoleReportDamaged: a log with lost or changed bytes yields the original report, or none. SECURITY.md: panic.
func TestConsoleReportDamaged(t *testing.T) {
	lines, err := ConsoleReport(held())
	require.NoError(t, err)
	want, err := unpackAll(lines)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	right, refused := 0, 0
	for range 1000 {
		text := []byte(among(lines) + among(lines))
		for range 1 + r.IntN(6) {
			at, n := r.IntN(len(text)), 1+r.IntN(60)
			if r.IntN(2) == 0 {
				text = append(text[:at], text[min(len(text), at+n):]...)
				continue
			}
			text[at] = byte(r.IntN(256))
		}
		got, err := DecodeConsole("console", strings.NewReader(string(text)))
		switch {
		case len(got) == 0 && err != nil:
			refused++
		case len(got) == 1 && cmp.Diff(want, got[0].Report) == "":
			right++
		default:
			t.Fatalf("%v, %v from:\n%s", got, err, text)
		}
	}
	t.Logf("of 1,000 damaged logs %d yielded the original report, %d none", right, refused)
	assert.True(t, right != 0 && refused != 0, "the damage covers only one of the two outcomes")
}

// TestConsoleReportFlood: forged lines, each of a different report, cost a small multiple of their size in memory, and a report after
// them is still read.
func TestConsoleReportFlood(t *testing.T) {
	lines, err := ConsoleReport(held())
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString(among(lines[:1])) // the remaining lines follow too late
	for i := range 200_000 {
		fmt.Fprintf(&b, "%s %08x 1/500 %08x A\n", consolePrefix, i, partSum("1/500", "A"))
	}
	size := b.Len()
	b.WriteString(among(lines))
	text := strings.NewReader(b.String())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := DecodeConsole("console", text)
	runtime.ReadMemStats(&after)
	assert.ErrorContains(t, err, "more than 1000 reports; ignored 199001 older lines")
	assert.True(t, len(got) == 1 && got[0].Node.Name == "node-1", "%d reports", len(got))
	used := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d KiB allocated for %d", used>>10, size>>10)
	assert.True(t, used <= 50*uint64(size), "%d KiB allocated for %d KiB", used>>10, size>>10)
}

// TestConsoleReportOrder: reports are returned in the order of their last lines; only the last report of a node is kept.
func TestConsoleReportOrder(t *testing.T) {
	var all [][]string
	for i, name := range []string{"a", "b", "a", "c"} {
		r := held()
		r.Node.Name, r.Node.Kernel = name, fmt.Sprint(i)
		lines, err := ConsoleReport(r)
		require.NoError(t, err)
		all = append(all, lines)
	}
	text := among(append([]string{all[3][0]}, slices.Concat(all...)...)) // c began first
	got, err := DecodeConsole("console", strings.NewReader(text))
	var is []string
	for _, r := range got {
		is = append(is, r.Node.Name+r.Node.Kernel)
	}
	assert.True(t, err == nil && slices.Equal(is, []string{"b1", "a2", "c3"}), "got %q, %v", is, err)
}

func FuzzDecodeConsole(f *testing.F) {
	lines, err := ConsoleReport(held())
	require.NoError(f, err)
	f.Add(among(lines[:2]))
	f.Add(among(lines))
	f.Fuzz(func(_ *testing.T, text string) { _, _ = DecodeConsole("console", strings.NewReader(text)) })
}
