package settle

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/require"
)

func slice(t *testing.T, address string) (text string, change proxy.Event) {
	t.Helper()
	text = fmt.Sprintf(`{"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "default", "name": "web-1",
		"labels": {"kubernetes.io/service-name": "web"}}, "ports": [{"port": 80}], "endpoints": [{"addresses": [%q]}]}`, address)
	change, err := proxy.SliceChange([]byte(text), false)
	require.NoError(t, err)
	return text, change
}

func listed(t *testing.T, address string) *proxy.Versions {
	t.Helper()
	text, _ := slice(t, address)
	v := proxy.NewVersions()
	var err, err2 error
	v.Services, err = proxy.LoadServices(strings.NewReader(`{"items": []}`))
	v.Endpoints, err2 = proxy.LoadEndpointSlices(strings.NewReader(`{"items": [` + text + `]}`))
	require.NoError(t, errors.Join(err, err2))
	return v
}

// TestFeed checks that a round gets its own copy of events and new lists, because the feed
// continues in another goroutine. Between rounds, only the latest state is stored.
func TestFeed(t *testing.T) {
	has := func(v *proxy.Versions, address string) bool {
		return v.Current().HadVersion(listed(t, address), proxy.ServicePort{Name: "default/web"})
	}
	f := newFeed(nil)
	f.addEvent(proxy.Relisted(listed(t, "10.0.0.1")))
	_, second := slice(t, "10.0.0.2")
	f.addEvent(second)
	if len(f.log) != 0 {
		t.Errorf("%d events are stored although no round is running", len(f.log))
	}
	mine := f.beginRound()
	if !has(mine, "10.0.0.2") {
		t.Error("the round lacks the latest change")
	}
	f.addEvent(proxy.Relisted(listed(t, "10.0.0.3")))
	for _, c := range f.log {
		mine.Apply(c)
	}
	_, fourth := slice(t, "10.0.0.4")
	f.addEvent(fourth)
	if !has(mine, "10.0.0.3") {
		t.Error("an event in the feed modified the state of the round")
	}
	f.endRound()
	if next := f.beginRound(); len(f.log) != 0 || !has(next, "10.0.0.4") {
		t.Error("the next round does not begin with the API's current state")
	}
}
