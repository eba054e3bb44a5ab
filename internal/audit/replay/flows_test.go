package replay_test

import (
	"encoding"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/audit/replay"
	"nodegate/internal/host/replica"
	"nodegate/internal/ruleset"
)

func TestMisled(t *testing.T) {
	c := replay.Cluster{}
	for _, p := range []string{"0.0.0.0:8081 10.244.0.9:80", "0.0.0.0:8082 10.244.0.77:80"} {
		at, to, _ := strings.Cut(p, " ")
		c.HostPorts = append(c.HostPorts, ruleset.HostPort{Protocol: unix.IPPROTO_TCP, At: netip.MustParseAddrPort(at), To: netip.MustParseAddrPort(to)})
	}
	assert.Diff(t, strings.Join(c.Misled(&replica.Capture{Silent: []netip.Addr{netip.MustParseAddr("10.244.0.77")}}), "\n"),
		"portmap leads port 8082/tcp to 10.244.0.77:80, where no Pod answers")
}

// TestTravels: a field that gob or JSON leaves out is missing in the user namespace that builds the replica.
func TestTravels(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		switch kind := of.Kind(); {
		case seen[of] || reflect.PointerTo(of).Implements(reflect.TypeFor[encoding.BinaryMarshaler]()):
		case kind == reflect.Struct:
			seen[of] = true
			for i := range of.NumField() {
				assert.True(t, of.Field(i).IsExported(), "%s.%s", of, of.Field(i).Name)
				look(of.Field(i).Type)
			}
		case kind == reflect.Slice || kind == reflect.Map || kind == reflect.Pointer:
			look(of.Elem())
		}
	}
	look(reflect.TypeFor[replay.Question]())
	look(reflect.TypeFor[replica.Capture]())
}

// TestDropGone: of the lost host ports only those are kept whose Pod is still there.
func TestDropGone(t *testing.T) {
	port := func(to string) ruleset.HostPort { return ruleset.HostPort{To: netip.MustParseAddrPort(to)} }
	lost := func(kind, to string) replay.Outcome {
		return replay.Outcome{Flow: replay.Flow{Kind: kind, Want: []netip.AddrPort{netip.MustParseAddrPort(to)}}}
	}
	a := replay.Answer{Losses: []replay.Loss{{Flows: []replay.Outcome{lost(replay.ToHostPort, "10.244.0.1:80"), lost(replay.ToService, "10.244.0.1:80"),
		lost(replay.ToHostPort, "10.244.0.2:80"), lost(replay.ToHostPort, "10.244.0.3:80")}}}}
	a.DropGone([]ruleset.HostPort{port("10.244.0.1:80"), port("10.244.0.2:80")}, []ruleset.HostPort{port("10.244.0.2:80")})
	got := ""
	for _, f := range a.Losses[0].Flows {
		got += f.Kind + " " + f.Want[0].String() + "\n"
	}
	assert.Equal(t, got, "service 10.244.0.1:80\nhostPort 10.244.0.2:80\nhostPort 10.244.0.3:80\n")
}
