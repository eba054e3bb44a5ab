package nftables_test

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/nftables"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestTorn: while the rules change constantly, every table that is read belongs to one generation, or the read fails with ErrTorn.
func TestTorn(t *testing.T) {
	const chains = 300
	n := scratch(t)
	var writer *exec.Cmd
	var in io.WriteCloser
	err := n.Do(t.Context(), func() (err error) {
		load := "add table ip kube-proxy\n"
		for i := range chains {
			load += fmt.Sprintf("add chain ip kube-proxy c%d\nadd rule ip kube-proxy c%d meta mark set 0\n", i, i)
		}
		if _, err := nft(load+"add set ip kube-proxy s { type inet_service; }\nadd element ip kube-proxy s { 0 }\n", "-f", "-"); err != nil {
			return err
		}
		writer = exec.Command("nft", "-i") // each line is one transaction
		if in, err = writer.StdinPipe(); err != nil {
			return err
		}
		return writer.Start()
	})
	require.NoError(t, err)
	written := make(chan int)
	stop := make(chan struct{})
	go func() {
		defer in.Close()
		for i := 1; ; i++ {
			line := fmt.Sprintf("flush set ip kube-proxy s; add element ip kube-proxy s { %d }", i%65536)
			for _, c := range []int{0, chains / 2, chains - 1} {
				line += fmt.Sprintf("; flush chain ip kube-proxy c%d; add rule ip kube-proxy c%d meta mark set %d", c, c, i%65536)
			}
			select {
			case <-stop:
				written <- i
				return
			default:
			}
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				written <- i
				return
			}
		}
	}()
	whole, torn := 0, 0
	values := map[string]bool{}
	err = n.Do(t.Context(), func() error {
		for range 5000 {
			if whole >= 200 && torn > 0 && len(values) > 20 {
				break
			}
			table, err := nftables.Read(t.Context(), "ip")
			if errors.Is(err, nftables.ErrTorn) {
				torn++
				continue
			}
			if err != nil {
				return err
			}
			whole++
			value := stamp(table, "c0")
			values[value] = true
			if last, middle := stamp(table, fmt.Sprint("c", chains-1)), stamp(table, fmt.Sprint("c", chains/2)); last != value || middle != value {
				return fmt.Errorf("of three generations: %q, %q, %q", value, middle, last)
			}
			if s := table.Sets["s"]; len(s.Elements) != 1 || !strings.HasSuffix(value, " "+s.Elements[0].String()) {
				return fmt.Errorf("set %v, rules %q", s, value)
			}
		}
		return nil
	})
	close(stop)
	t.Logf("%d generations written, %d read whole, %d torn", <-written, whole, torn)
	waited := writer.Wait()
	assert.True(t, waited == nil, "nft: %v", waited)
	require.NoError(t, err)
	assert.True(t, whole != 0 && len(values) >= 2, "%d complete reads of %d generations", whole, len(values))
}

func stamp(t *ruleset.NFTTable, chain string) string {
	if c := t.Chain(chain); c != nil && len(c.Rules) == 1 {
		return c.Rules[0].Text
	}
	return "no rule"
}
