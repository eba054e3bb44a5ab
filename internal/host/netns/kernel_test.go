package netns_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

func scratch(t *testing.T) (*netns.Namespace, context.Context) {
	t.Helper()
	hosttest.NeedRoot(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a busy machine
	t.Cleanup(cancel)
	n, err := netns.New(ctx)
	require.NoError(t, err)
	t.Cleanup(n.Close)
	return n, ctx
}

// TestNetnsStaysApart: entering a namespace affects only one thread: the process and every other thread stay in their namespace.
func TestNetnsStaysApart(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	n, ctx := scratch(t)
	var tid int
	var inside string
	require.NoError(t, n.Do(ctx, func() (err error) {
		tid = unix.Gettid()
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}))
	require.True(t, inside != before && tid != os.Getpid(), "thread %d is in %s", tid, inside)
	n.Close()
	n.Close()
	err = n.Do(ctx, func() error { return nil })
	assert.True(t, errors.Is(err, os.ErrClosed), "closed: %v", err)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 400 {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
			break
		}
		<-tick.C
	}
	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, task := range tasks {
		if at, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && at != before {
			t.Errorf("thread %s is left in %s", task.Name(), at)
		}
	}
}

func TestNetnsDoneContext(t *testing.T) {
	n, ctx := scratch(t)
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	err := n.Do(ctx, func() error { t.Error("it ran"); return nil })
	assert.True(t, errors.Is(err, context.Canceled), "%v", err)
	_, err = netns.New(ctx)
	assert.True(t, errors.Is(err, context.Canceled), "%v", err)
}

func TestNetnsErrors(t *testing.T) {
	n, ctx := scratch(t)
	_, err := n.Sysctl(ctx, "net/ipv4/no_such_key")
	assert.True(t, errors.Is(err, os.ErrNotExist), "%v", err)
	err = n.SetSysctl(ctx, "net/ipv4/ip_forward", "x")
	assert.True(t, err != nil && err.Error() == "setting net.ipv4.ip_forward=x: invalid argument", "%v", err)
}

// TestConntrackLookup: a flow that is not in the table is fs.ErrNotExist.
func TestConntrackLookup(t *testing.T) {
	n, ctx := scratch(t)
	flow := netns.Tuple{From: netip.MustParseAddrPort("203.0.113.2:49152"), To: netip.MustParseAddrPort("198.51.100.10:80"), Proto: 6}
	c, err := n.Conntrack(ctx)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Lookup(flow)
	assert.True(t, errors.Is(err, fs.ErrNotExist), "%v", err)
	err = c.Delete(flow)
	assert.True(t, errors.Is(err, fs.ErrNotExist), "%v", err)
}
