package host_test

import (
	"errors"
	"io/fs"
	"testing"

	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestReplayLinks: a replay returns a link's recorded state, and no later event.
func TestReplayLinks(t *testing.T) {
	m := &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {Index: 2, MTU: 9001}}}
	recorder, s := host.Record(m.Host())
	replayed := host.Replay(s)
	if _, err := replayed.Links.Get(t.Context(), "eth0"); !errors.Is(err, host.ErrNotRecorded) {
		t.Errorf("before the links were listed: %v", err)
	}
	if _, err := recorder.Links.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := replayed.Links.Get(t.Context(), "eth0")
	if err != nil || l != (host.Link{Name: "eth0", Index: 2, MTU: 9001, Up: true}) {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := replayed.Links.Get(t.Context(), "eth1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing link: %v", err)
	}
	err = replayed.Links.Watch(t.Context(), func() { t.Error("subscribed to a snapshot") }, nil)
	if !errors.Is(err, host.ErrNotRecorded) {
		t.Errorf("notifications: %v", err)
	}
}
