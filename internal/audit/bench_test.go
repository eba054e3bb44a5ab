package audit

import (
	"syscall"
	"testing"
	"time"

	"nodegate/internal/ruleset"
)

// BenchmarkPart reads and judges the rules of 2,000 Services with ten endpoints each: all of them, and those
// of one Service.
func BenchmarkPart(b *testing.B) {
	w := newScale(ruleset.IPv4, 2000)
	for mode, text := range map[string]string{"iptables": w.save(), "nftables": w.nft()} {
		b.Run(mode, func(b *testing.B) {
			inScratch(b, mode, text, func(n *Machine) error {
				var whole, part time.Duration
				for b.Loop() {
					at := processorTime()
					if _, err := n.Rules(b.Context()); err != nil {
						return err
					}
					whole, at = whole+processorTime()-at, processorTime()
					if _, err := n.RulesOf(b.Context(), []string{w.service(7)}); err != nil {
						return err
					}
					part += processorTime() - at
				}
				b.ReportMetric(float64(whole.Microseconds())/1000/float64(b.N), "CPU-ms/whole")
				b.ReportMetric(float64(part.Microseconds())/1000/float64(b.N), "CPU-ms/part")
				return nil
			})
		})
	}
}

func processorTime() time.Duration {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
