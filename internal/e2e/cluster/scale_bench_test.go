//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"nodegate/internal/require"
)

// BenchmarkScale measures the cost of watch's audit for a node and the API server. It has SERVICES (5000) Services with ten endpoints,
// first without changes, then with one change a second, and WATCHERS (100) additional watches of each kind.
func BenchmarkScale(b *testing.B) {
	c, binary := startPlane(b, Newest, ForRules()), buildNodegate(b)
	churn := &Churn{Services: envNumber(b, "SERVICES", 5000), Endpoints: 10, Scale: 50, Every: time.Second}
	require.NoError(b, churn.Prepare(b.Context(), c))
	server := c.programs["kube-apiserver"]
	for _, backend := range []Backend{IptablesLegacy, NFTables} { // iptables-restore of the nft variant takes over ten minutes for so many
		b.Run(string(backend), func(b *testing.B) {
			n := addNode(b, c, backend)
			began := time.Now()
			k := startKept(b, n, binary, "5m")
			waitWithin(b, 15*time.Minute, "verdict pass, at first", func() (bool, error) { return k.passes() })
			b.ReportMetric(time.Since(began).Seconds(), "first-s")
			const saved = 5 * time.Minute // time that watch saved while nothing changed, and that the first round afterwards uses
			measure := func(what string, during func()) {
				before, at := processorTime(b, k.watch), time.Now()
				during()
				b.ReportMetric(100*(processorTime(b, k.watch)-before).Seconds()/time.Since(at).Seconds(), what+"-cpu-%")
				b.ReportMetric(float64(resident(b, k.watch)>>20), what+"-MiB")
				b.ReportMetric(float64(peak(b, k.watch)>>20), what+"-peak-MiB") // since the start
			}
			measure("settling", func() { time.Sleep(2 * time.Minute) }) // the rest of the work of the first round
			measure("still", func() { time.Sleep(saved) })
			duringChurn(b, churn, func() {
				measure("beginning", func() { time.Sleep(saved) })
				measure("moving", func() { time.Sleep(2 * saved) })
			})
			b.Log(k.counts())
		})
	}
	b.Run("api", func(b *testing.B) {
		const lists = 10
		bytes := 0
		before := processorTime(b, server)
		for range lists {
			bytes = listBytes(b, c, slicesOfAll) + listBytes(b, c, servicesOfAll)
		}
		b.ReportMetric(float64((processorTime(b, server)-before).Milliseconds())/lists, "ms/list")
		b.ReportMetric(float64(bytes)/1e6, "MB/list")
		spent := func() float64 {
			before := processorTime(b, server)
			changes := churn.Changes()
			duringChurn(b, churn, func() { time.Sleep(time.Minute) })
			return (processorTime(b, server) - before).Seconds() * 1e6 / float64(churn.Changes()-changes)
		}
		alone := spent()
		watchers := envNumber(b, "WATCHERS", 100)
		end := watchAll(b, c, watchers)
		crowd := spent()
		end()
		b.ReportMetric((crowd-alone)/float64(watchers), "us/change/watcher")
	})
}

const (
	slicesOfAll   = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0"
	servicesOfAll = "/api/v1/services?resourceVersion=0"
)

func envNumber(b *testing.B, variable string, otherwise int) int {
	b.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(b, err)
	return n
}

// listBytes requests a list as nodegate does, and returns the number of bytes sent over the wire.
func listBytes(b *testing.B, c *ControlPlane, path string) int {
	b.Helper()
	answer, err := c.API.get(b.Context(), path)
	require.NoError(b, err)
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	require.NoError(b, err)
	return int(n)
}

// watchAll opens many watches of EndpointSlices and Services until end is called.
func watchAll(b *testing.B, c *ControlPlane, watchers int) (end func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for range watchers {
		for _, path := range []string{slicesOfAll, servicesOfAll} {
			all.Go(func() {
				answer, err := c.API.get(ctx, path+"&watch=1&allowWatchBookmarks=1&timeoutSeconds=600")
				if err != nil {
					b.Error(err)
					return
				}
				defer answer.Body.Close()
				_, _ = io.Copy(io.Discard, answer.Body) // ends with the context
			})
		}
	}
	time.Sleep(30 * time.Second) // a watch from version 0 first sends all existing objects
	return func() {
		cancel()
		all.Wait()
	}
}

// get sends one request without a time limit. The body is the raw, compressed answer.
func (a *API) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "gzip")
	client := *a.client
	client.Timeout = 0
	answer, err := client.Do(request)
	if err == nil && answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return answer, err
}
