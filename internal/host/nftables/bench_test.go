package nftables_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// large returns the rules of 5,000 Services with 10 endpoints each: until 1.35 each endpoint has a chain, since 1.36 a map element.
func large(endpointChains bool) string {
	var b, elements strings.Builder
	b.WriteString("table ip kube-proxy {\n\tchain mark-for-masquerade { mark set mark or 0x4000; }\n" +
		"\tchain services { ip daddr . meta l4proto . th dport vmap @service-ips; }\n" +
		"\tchain nat-output { type nat hook output priority -100; jump services; }\n")
	for i := range 5000 {
		name := fmt.Sprintf("ABCD%04d-scale/s%d/tcp/", i, i)
		ip := fmt.Sprintf("10.%d.%d.%d", 100+i/65536, i/256%256, i%256)
		fmt.Fprintf(&elements, "%s . tcp . 80 : goto service-%s, ", ip, name)
		var dispatch []string
		for k := range 10 {
			e := i*10 + k
			address := fmt.Sprintf("100.%d.%d.%d", 64+e/65536, e/256%256, e%256)
			if !endpointChains {
				dispatch = append(dispatch, fmt.Sprintf("%d : %s . 80", k, address))
				continue
			}
			chain := fmt.Sprintf("endpoint-%08d-scale/s%d/tcp/__%s/80", e, i, address)
			dispatch = append(dispatch, fmt.Sprintf("%d : goto %s", k, chain))
			fmt.Fprintf(&b, "\tchain %s { ip saddr %s jump mark-for-masquerade; meta l4proto tcp dnat to %s:80; }\n", chain, address, address)
		}
		if endpointChains {
			fmt.Fprintf(&b,
				"\tchain service-%s { ip daddr %s ip saddr != 100.64.0.0/10 jump mark-for-masquerade; numgen random mod 10 vmap { %s }; }\n",
				name, ip, strings.Join(dispatch, ", "))
		} else {
			fmt.Fprintf(&b, "\tchain service-%s { meta l4proto tcp dnat ip addr . port to numgen random mod 10 map { %s }; }\n",
				name, strings.Join(dispatch, ", "))
		}
	}
	return b.String() + "\tmap service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { " +
		strings.TrimSuffix(elements.String(), ", ") + " }; }\n}\n"
}

// runsOne is the variable that turns this program into one that runs another program and reports its cost. A child of this process would
// start with this process's peak memory.
const runsOne = "NODEGATE_RUNS_ONE"

func TestMain(m *testing.M) {
	if os.Getenv(runsOne) == "" {
		os.Exit(m.Run())
	}
	os.Exit(runOne(os.Args[1:]))
}

// peakOf returns the peak memory of a process in MiB, according to its status.
func peakOf(status []byte) float64 {
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	kb, _ := strconv.Atoi(strings.Fields(string(after))[0])
	return float64(kb) / 1024
}

// BenchmarkAudit runs the programs in BINARIES alternately on the rules of 5,000 Services with 10 endpoints each.
func BenchmarkAudit(b *testing.B) {
	binaries := strings.Fields(os.Getenv("BINARIES"))
	hosttest.Need(b, len(binaries) > 0, "BINARIES, as make bench sets it")
	save := recordedSaves(b, testdata+"iptables-save-5000x10.txt.gz")[ruleset.IPv4]
	for name, load := range map[string]func() (string, error){
		"nftables-1.36":   func() (string, error) { return nft(large(false), "-f", "-") },
		"nftables-1.35":   func() (string, error) { return nft(large(true), "-f", "-") },
		"iptables-nft":    func() (string, error) { return run(save, program(b, ruleset.IPv4, "-restore")) },
		"iptables-legacy": func() (string, error) { return run(save, "iptables-legacy-restore") },
	} {
		b.Run(name, func(b *testing.B) {
			err := scratch(b).Do(b.Context(), func() error {
				if _, err := load(); err != nil {
					return err
				}
				all := make([]cost, len(binaries))
				for i, binary := range binaries {
					all[i].argv = []string{binary, "audit", "--timeout", "5m"}
					// Without kube-proxy, audit repeats its checks until it is sure. A program without this flag never does.
					if help, _ := exec.Command(binary, "audit", "--help").Output(); bytes.Contains(help, []byte("--once")) {
						all[i].argv = append(all[i].argv, "--once")
					}
				}
				for b.Loop() {
					for i := range all {
						if err := all[i].audit(b.Context()); err != nil {
							return err
						}
					}
				}
				for i, c := range all {
					b.ReportMetric(c.took.Seconds()/float64(b.N), fmt.Sprintf("s/audit-%d", i))
					b.ReportMetric(c.processor.Seconds()/float64(b.N), fmt.Sprintf("CPU-s/audit-%d", i))
					b.ReportMetric(c.peak, fmt.Sprintf("MiB-peak-%d", i))
				}
				return nil
			})
			require.NoError(b, err)
		})
	}
}

// cost is the time and memory that the audits of one program took, including the programs that it ran.
type cost struct {
	argv            []string
	took, processor time.Duration
	peak            float64
}

func (c *cost) audit(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, os.Args[0], c.argv...)
	cmd.Env = append(os.Environ(), runsOne+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w\n%s", c.argv, err, out)
	}
	var took, processor time.Duration
	if _, err := fmt.Sscanf(string(out), "took %d processor %d", &took, &processor); err != nil {
		return err
	}
	c.took, c.processor, c.peak = c.took+took, c.processor+processor, max(c.peak, peakOf(out))
	return nil
}

// runOne runs a program and prints its time and memory.
func runOne(argv []string) (status int) {
	cmd := exec.Command(argv[0], argv[1:]...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	// These rules were not written by a running kube-proxy, so the verdict fail is not an error here. Usage errors and unreadable input are.
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
		fmt.Printf("%v\n%s", err, out)
		return 1
	}
	fmt.Printf("took %d processor %d VmHWM: %d\n", took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(),
		cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	return 0
}
