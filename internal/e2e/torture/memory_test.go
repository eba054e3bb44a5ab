//go:build torture

package torture

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/require"
)

// TestMemory gives every reader its most expensive input. It may use at most ten times the size of the input plus 96 MiB of memory.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	var s survey
	const free = 96 << 20
	try := func(what, input string, args ...string) {
		var size int64
		require.NoError(t, filepath.Walk(input, func(_ string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() {
				size += min(info.Size(), 64<<20) // nodegate's limit for one file, and for one directory
			}
			return err
		}))
		size = min(size, 64<<20)
		s.runPoint(t, what, func() error {
			cmd := exec.Command(nodegate(t), args...)
			output, err := os.Create(filepath.Join(dir, "output"))
			if err != nil {
				return err
			}
			defer output.Close()
			cmd.Stdout, cmd.Stderr = output, output
			_ = cmd.Run() // most inputs are refused
			if cmd.ProcessState == nil {
				return errors.New("the program did not start")
			}
			head := make([]byte, 400)
			n, err := output.ReadAt(head, 0)
			if n == 0 {
				return fmt.Errorf("the output is empty: %w", err)
			}
			out := string(head[:n])
			used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
			t.Logf("%s: %d MiB of input, %d MiB of memory; the output begins with %.150q", what, size>>20, used>>20, out)
			if used > 10*size+free {
				return fmt.Errorf("%d MiB of memory for %d MiB of input", used>>20, size>>20)
			}
			if cmd.ProcessState.ExitCode() < 0 || strings.Contains(out, "goroutine ") {
				return fmt.Errorf("the program crashed: %s", out)
			}
			return nil
		})
	}
	for _, of := range []struct {
		reports, results int
		same             bool
	}{{20, 10_000, false}, {1000, 500, false}, {190, 10_000, true}} {
		f := filepath.Join(dir, fmt.Sprintf("reports-%d-%d-%v.json", of.reports, of.results, of.same))
		file, err := os.Create(f)
		require.NoError(t, err)
		text := bufio.NewWriter(file) // keep this process small: a child's memory counts from the fork on
		for n := range of.reports {
			fmt.Fprintf(text, `{"apiVersion":"nodegate/v1","kind":"Report","node":{"name":"n%d"},"stage":"boot","verdict":"pass","results":[`, n)
			for i := range of.results {
				if i > 0 {
					fmt.Fprint(text, ",")
				}
				if of.same {
					fmt.Fprintf(text, `{"name":"%d","verdict":"pass"}`, i)
				} else {
					fmt.Fprintf(text, `{"name":"own.%d-%d","severity":"block","verdict":"pass","want":"1","got":"1"}`, n, i)
				}
			}
			fmt.Fprintln(text, "]}")
		}
		require.NoError(t, errors.Join(text.Flush(), file.Close()))
		formats := []string{"text"}
		if *long {
			formats = []string{"text", "json"}
		}
		for _, format := range formats {
			try(fmt.Sprintf("report --format %s: %d reports of %d checks, all alike: %v", format, of.reports, of.results, of.same), f,
				"report", "--format", format, f)
		}
	}
	for _, where := range []string{"etc/nodegate/policy.d/%d.hcl", "etc/sysctl.d/%d.conf"} {
		root := filepath.Join(dir, filepath.Base(filepath.Dir(where)))
		for n := range 60 {
			f := filepath.Join(root, fmt.Sprintf(where, n))
			writeFile(t, f, "")
			require.NoError(t, os.Truncate(f, 60<<20))
		}
		try("60 files of 60 MiB in "+filepath.Dir(where), root, "check", "--root", root, "--stage", "image")
	}
	for name, text := range map[string]string{
		"brackets":   "sysctl \"a.b\" { value = " + strings.Repeat("[", 60_000) + "1" + strings.Repeat("]", 60_000) + " }\n",
		"for in for": "sysctl \"a.b\" { value = [for a in range(1000) : [for b in range(1000) : [for c in range(1000) : a]]] }\n",
		"doubling": "variable \"v\" { default = \"" + strings.Repeat("x", 1000) + "\" }\nsysctl \"a.b\" { value = \"" +
			strings.Repeat("${var.v}", 16_000) + "\" }\n",
		"for over a string": "variable \"v\" { default = \"" + strings.Repeat("x", 60_000) + "\" }\nsysctl \"a.b\" { one_of = [for a in [" +
			strings.Repeat("1,", 30_000) + "1] : \"${a}${var.v}\"] }\n",
		"format":    "sysctl \"a.b\" { value = format(\"" + strings.Repeat("%[1]s", 12_000) + "\", \"" + strings.Repeat("x", 60_000) + "\") }\n",
		"a pattern": "sysctl \"a.b\" { value = regex(\"" + strings.Repeat("((a{1,100}){1,10})", 1_000) + "\", \"a\") }\n",
	} {
		f := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".hcl")
		writeFile(t, f, text)
		try("a policy with "+name, f, "check", "--stage", "image", "--root", dir, "--policy", f)
		try("a policy with "+name+", lint", f, "lint", f)
	}
	endpoints, ports := make([]string, 1000), make([]string, 20_000)
	for i := range endpoints {
		endpoints[i] = fmt.Sprintf(`{"addresses":["10.1.%d.%d"]}`, i/250, i%250)
	}
	for i := range ports {
		ports[i] = fmt.Sprintf(`{"name":"p%d","port":%d,"protocol":"TCP"}`, i, i+1)
	}
	slices := filepath.Join(dir, "slices.json")
	writeFile(t, slices, `{"items":[{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a","namespace":"b","labels":`+
		`{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","endpoints":[`+strings.Join(endpoints, ",")+`],"ports":[`+
		strings.Join(ports, ",")+`]}]}`)
	rules := filepath.Join(dir, "rules")
	writeFile(t, rules, "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")
	try("an EndpointSlice of 20,000 ports and 1,000 endpoints", slices, "audit", "--rules", rules, "--endpoints", slices)
	s.printCounts(t, "memory: ten times the input and 96 MiB")
}
