package host_test

import (
	"errors"
	"io/fs"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestReplayLinks: a replay returns a link's recorded state, and no later event.
func TestReplayLinks(t *testing.T) {
	m := &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {Index: 2, MTU: 9001}}}
	recorder, s := host.Record(m.Host())
	replayed := host.Replay(s)
	_, err := replayed.Links.Get(t.Context(), "eth0")
	assert.True(t, errors.Is(err, host.ErrNotRecorded), "before the links were listed: %v", err)
	_, err = recorder.Links.List(t.Context())
	require.NoError(t, err)
	l, err := replayed.Links.Get(t.Context(), "eth0")
	assert.True(t, err == nil && l == (host.Link{Name: "eth0", Index: 2, MTU: 9001, Up: true}), "%+v, %v", l, err)
	_, err = replayed.Links.Get(t.Context(), "eth1")
	assert.True(t, errors.Is(err, fs.ErrNotExist), "a missing link: %v", err)
	err = replayed.Links.Watch(t.Context(), func() { t.Error("subscribed to a snapshot") }, nil)
	assert.True(t, errors.Is(err, host.ErrNotRecorded), "notifications: %v", err)
}
