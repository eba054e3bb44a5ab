//go:build torture

package torture

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// repeated is a reader that begins with a text and then repeats another, up to a size.
func repeated(begin, text string, size int64) io.Reader {
	return io.MultiReader(strings.NewReader(begin), io.LimitReader(&repeater{text: bytes.Repeat([]byte(text), 64<<10/len(text)+1)}, size))
}

type repeater struct {
	text []byte
	at   int
}

func (r *repeater) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

// huge is more than any limit of an input.
const huge = 1 << 30

// memoryLimit bounds a run's address space, of which Go's runtime reserves hundreds of MiB, and its memory.
const (
	addressLimit = 3 << 30
	memoryLimit  = 512 << 20
)

// TestEndless gives each reader of standard input, and each response of a server, text that does not end. nodegate must refuse it,
// name the limit or the fault, and stay within its memory.
func TestEndless(t *testing.T) {
	r := newRoom(t, heldPolicy)
	rules := r.dir + "/rules"
	writeFile(t, rules, "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")
	const kops = "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nspec:\n"
	const slice = `{"items":[{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","endpoints":[`
	var s survey
	type point struct {
		what        string
		begin, text string
		size        int64
		args        []string
	}
	var points, big []point
	for what, text := range map[string][2]string{
		"zeros": {"", "\x00"}, "letters": {"", "a"}, "lines": {"", "a\n"}, "line ends": {"", "\n"}, "brackets": {"", "["}, "braces": {"", "{"},
		"a string": {`{"items":["`, "a"}, "an object": {`{"a":1`, `,"b":2`}, "a number": {"", "1"}, "spaces": {"", " "},
		"escapes": {"", "\x1b[2J"}, "high bytes": {"", "\xff"},
	} {
		for _, args := range [][]string{{"lint", "--kops", "-"}, {"audit", "--rules", "-"},
			{"audit", "--rules", rules, "--endpoints", "/dev/stdin"}, {"report", "-"}, {"fmt"}, {"check", "--snapshot", "/dev/stdin"}, {"lint", "/dev/stdin"}} {
			points = append(points, point{"endless " + what, text[0], text[1], huge, args})
		}
	}
	for what, text := range map[string][2]string{
		"entries on one line": {kops + "  sysctlParameters: [", "a,"}, "entries": {kops + "  hooks:\n", "  - a\n"},
		"documents": {"", kops + "---\n"}, "a unit": {kops + "  hooks:\n  - name: a\n    manifest: |\n", "      a=b\n"},
		"mappings": {kops + "  a: [", "{a: {b: c}},"}, "nested lists": {kops + "  a: ", "["},
		"aliases": {kops + "  a: &a b\n  hooks: [", "*a, "}, "comments": {kops, "# a\n"},
	} {
		big = append(big, point{"28 MiB of " + what, text[0], text[1], 28 << 20, []string{"lint", "--kops", "-"}})
	}
	big = append(big, point{"an endless EndpointSlice", slice, `{"addresses":["10.0.0.1"]},`, huge, []string{"audit", "--rules", rules, "--endpoints", "/dev/stdin"}},
		point{"endless rules", "*nat\n:KUBE-SERVICES - [0:0]\n", "-A KUBE-SERVICES -j ACCEPT\n", huge, []string{"audit", "--rules", "-"}})
	byName := func(a, b point) int {
		return strings.Compare(a.what+strings.Join(a.args, " "), b.what+strings.Join(b.args, " "))
	}
	slices.SortFunc(points, byName) // from maps, whose order is random: a seed names the same points again
	slices.SortFunc(big, byName)
	for _, of := range []struct {
		points []point
		sample int
	}{{points, 12}, {big, len(big)}} {
		forEachPoint(samplePoints(t, len(of.points), of.sample), 2, func(i int) {
			p := of.points[i]
			s.runPoint(t, fmt.Sprintf("%q, %s", p.args, p.what), func() error {
				return r.endless(t, p.what, repeated(p.begin, p.text, p.size), p.args...)
			})
		})
	}
	s.printCounts(t, "endless and huge inputs")

	var answers survey
	for what, text := range map[string][2]string{
		"a string": {`{"items":[{"a":"`, "a"}, "a list": {`{"items":[`, "["}, "a version": {`{"metadata":{"resourceVersion":"`, "1"},
		"zeros": {"", "\x00"}, "spaces": {"", " "}, "an EndpointSlice": {slice, `{"addresses":["10.0.0.1"]},`}, "HTML": {"<html>", "<p>"},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, repeated(text[0], text[1], huge))
		}))
		config := r.dir + "/kubeconfig"
		writeFile(t, config, "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: a, user: a}\n"+
			"clusters:\n- name: a\n  cluster:\n    server: "+server.URL+"\n    certificate-authority-data: "+base64.StdEncoding.EncodeToString(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))+"\nusers:\n- name: a\n  user: {token: a}\n")
		answers.runPoint(t, "audit, the API server sends "+what, func() error {
			return r.endless(t, what, nil, "audit", "--rules", rules, "--kubeconfig", config)
		})
		server.Close()
	}
	answers.printCounts(t, "endless responses of an API server")
}

// endless runs nodegate with an endless input, in the machine's network.
func (r room) endless(t *testing.T, what string, stdin io.Reader, args ...string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*runLimit)
	defer cancel()
	limited := []string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, addressLimit>>10), "sh", r.nodegate}
	cmd := exec.CommandContext(ctx, "/bin/sh", append(limited, args...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var out limitedOutput
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &out
	status, err := finish(ctx, cmd)
	if err != nil && !strings.Contains(err.Error(), "broken pipe") {
		return err
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("%s, %s: status %d, %d MiB, %.150q", strings.Join(args, " "), what, status, used>>20, out.text)
	switch text := string(out.text); {
	case status < 0 || status > 128 || strings.Contains(text, "goroutine "):
		return fmt.Errorf("nodegate crashed with status %d: %.400s", status, text)
	case status == 0:
		return fmt.Errorf("nodegate accepted it: %.400s", text)
	case text == "":
		return fmt.Errorf("the output is empty")
	case used > memoryLimit:
		return fmt.Errorf("%d MiB of memory: %.400s", used>>20, text)
	}
	return nil
}

// limitedOutput keeps the beginning of an output.
type limitedOutput struct{ text []byte }

func (l *limitedOutput) Write(p []byte) (int, error) {
	l.text = append(l.text, p[:min(len(p), 4096-min(4096, len(l.text)))]...)
	return len(p), nil
}
