package gate

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
)

// TestKeeper: while a file system hangs, it delays only one line per retry; afterwards it has every change once and in order.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, hangs := time.Now(), 20*time.Second
		var got []string
		var mu sync.Mutex
		note := func(format string, what string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf(format, what, time.Since(began)))
		}
		noted := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			all := got
			got = nil
			return all
		}
		k := recorder{write: func(c report.AppliedChange) {
			time.Sleep(time.Until(began.Add(hangs)))
			note("%s at %s", c.Writes[0].To)
		}}
		made := func(to string) {
			k.record(checks.Result{Name: "test"}, []checks.Change{{Target: "test", To: to}})
			note("after %s %s", to)
		}
		made("a")
		made("b")
		time.Sleep(6 * time.Second)
		made("c")
		made("d")
		time.Sleep(10 * time.Second)
		made("e")
		want := "after a 3s, after b 3s, after c 12s, after d 12s, a at 20s, b at 20s, c at 20s, d at 20s, e at 22s, after e 22s"
		assert.Equal(t, strings.Join(noted(), ", "), want)
		hangs = time.Hour
		for i := range mostWaiting + 10 {
			made(fmt.Sprint(i))
		}
		d := time.Since(began)
		assert.True(t, d <= time.Minute, "a file system that does not respond delayed the changes until %s", d)
		noted()
		time.Sleep(2 * time.Hour)
		n := len(noted())
		assert.True(t, n == mostWaiting+1, "%d lines waited besides the one being written", n-1)
	})
}
