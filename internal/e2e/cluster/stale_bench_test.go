//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/require"
)

// BenchmarkStale measures when watch names a Service that went stale in a large cluster, and the processor time of its audit at rest and
// per change. It has SERVICES (2000) Services with ten endpoints. The programs in BINARIES, which default to a new build, watch the same
// node at the same time. BACKENDS selects backends.
func BenchmarkStale(b *testing.B) {
	binaries := strings.Fields(os.Getenv("BINARIES"))
	if len(binaries) == 0 {
		binaries = []string{buildNodegate(b)}
	}
	backends := []Backend{IptablesNFT, NFTables}
	if names := strings.Fields(os.Getenv("BACKENDS")); len(names) > 0 {
		backends = nil
		for _, name := range names {
			backends = append(backends, Backend(name))
		}
	}
	c := startPlane(b, Newest, ForRules())
	churn := &Churn{Services: envNumber(b, "SERVICES", 2000), Endpoints: 10, Scale: 50, Every: time.Second}
	require.NoError(b, churn.Prepare(b.Context(), c))
	victim, err := c.AddService(b.Context(), "victim", "TCP")
	require.NoError(b, err)
	victim.replaceEndpoints()
	require.NoError(b, victim.Update(b.Context()))
	for _, backend := range backends {
		b.Run(string(backend), func(b *testing.B) {
			n := addNode(b, c, backend)
			all := make([]*kept, len(binaries))
			for i, binary := range binaries {
				all[i] = startKeptAt(b, n, binary, "5m", 9758+i)
			}
			for _, k := range all {
				waitWithin(b, 15*time.Minute, "verdict pass, at first", func() (bool, error) { return k.passes() })
			}
			measure := func(what string, d time.Duration) {
				changes, at := churn.Changes(), time.Now()
				before := make([]time.Duration, len(all))
				for i, k := range all {
					before[i] = processorTime(b, k.watch)
				}
				time.Sleep(d)
				for i, k := range all {
					used := (processorTime(b, k.watch) - before[i]).Seconds()
					b.ReportMetric(100*used/time.Since(at).Seconds(), fmt.Sprintf("%s-cpu-%%-%d", what, i))
					if changed := churn.Changes() - changes; changed > 0 {
						b.ReportMetric(1000*used/float64(changed), fmt.Sprintf("ms/change-%d", i))
					}
					b.Logf("%s, %s: %.2f s of a processor, %s", what, filepath.Base(binaries[i]), used, k.counts())
				}
			}
			time.Sleep(time.Minute) // the rest of the work of the first round
			measure("rest", 2*time.Minute)
			duringChurn(b, churn, func() { measure("churn", 3*time.Minute) })
			time.Sleep(10 * time.Second) // kube-proxy writes the last change
			require.NoError(b, n.CutProxy(b.Context()))
			time.Sleep(40 * time.Second) // packets of the API server pass only after watch has sent one on its connection
			victim.replaceEndpoints()
			require.NoError(b, victim.Update(b.Context()))
			began := time.Now()
			named := make([]time.Duration, len(all))
			waitWithin(b, 10*time.Minute, "the stale Service", func() (bool, error) {
				missing := false
				for i, k := range all {
					if named[i] == 0 && k.verdict() == "fail" {
						named[i] = time.Since(began)
						b.Logf("%s named it after %s", filepath.Base(binaries[i]), named[i])
					}
					missing = missing || named[i] == 0
				}
				return !missing, nil
			})
			for i, d := range named {
				b.ReportMetric(d.Seconds(), fmt.Sprintf("s/stale-%d", i))
				if said := all[i].readLog(); !strings.Contains(said, "default/victim") || strings.Contains(said, "churn-") {
					b.Errorf("%s: want findings about default/victim only:\n%s", binaries[i], said)
				}
			}
		})
	}
}
