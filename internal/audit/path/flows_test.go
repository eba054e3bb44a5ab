package path_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/audit/path"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// flows are rules that kube-proxy 1.37.2 wrote in its own unit tests, and where these tests expect packets to go. The rules of
// nftables mode were loaded into a kernel and read back with nft -j.
type flows struct {
	Mode, Rules string
	NodeIPs     []netip.Addr
	Flows       []struct {
		From, To   netip.Addr
		Protocol   string
		Port       uint16
		End        string // "DROP", "REJECT", the endpoints, or nothing: not translated
		Masquerade bool
	}
}

func TestKubeProxyFlows(t *testing.T) {
	file, err := os.Open("testdata/kube-proxy-1.37.2-flows.jsonl.gz")
	require.NoError(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	tried := map[string]int{}
	for in := json.NewDecoder(text); ; {
		var c flows
		if err := in.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		set, err := ruleset.Parse("rules", strings.NewReader(c.Rules))
		require.NoError(t, err)
		own := func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(c.NodeIPs, a) }
		for _, flow := range c.Flows {
			tried[c.Mode]++
			family := ruleset.IPv4
			if flow.To.Is6() {
				family = ruleset.IPv6
			}
			for _, save := range set.Saves {
				save.Family = family // iptables-save does not tell
			}
			rules := path.New([]*ruleset.Set{set}, family, path.Node{Own: func(a netip.Addr) path.Answer {
				if own(a) {
					return path.Yes
				}
				return path.No
			}})
			ways := rules.Walk(path.Packet{Source: path.Addr(flow.From), Destination: path.Addr(flow.To), Protocol: flow.Protocol,
				SourcePort: 40000, Port: flow.Port, State: path.StateNew, Own: own(flow.From)}, "", nil)
			end, masqueraded, plain := describeEnds(ways)
			if flow.End == "ACCEPT" { // the port of a health check
				flow.End = ""
			}
			translated := end != "" && end != "DROP" && end != "REJECT"
			if end != flow.End || translated && (flow.Masquerade && plain > 0 || !flow.Masquerade && masqueraded > 0) {
				t.Errorf("%s mode, %+v: %q, %d ways masqueraded, %d not; rules:\n%s", c.Mode, flow, end, masqueraded, plain, c.Rules)
			}
		}
	}
	if tried["iptables"] < 240 || tried["nftables"] < 210 {
		t.Errorf("packets tried: %v", tried)
	}
}

// describeEnds returns the ends of ways in the form of flows, and how many ways are masqueraded.
func describeEnds(ways []path.Way) (end string, masqueraded, plain int) {
	var ends []string
	for _, w := range ways {
		where := ""
		switch {
		case !w.Sure:
			where = "not known"
		case w.End == path.Dropped:
			where = "DROP"
		case w.End == path.Rejected:
			where = "REJECT"
		case w.Packet.Translated():
			where = netip.AddrPortFrom(w.Packet.Destination.Addr(), w.Packet.Port).String()
		}
		if w.Packet.Masqueraded() {
			masqueraded++
		} else {
			plain++
		}
		if where != "" && !slices.Contains(ends, where) {
			ends = append(ends, where)
		}
	}
	slices.Sort(ends)
	return strings.Join(ends, ", "), masqueraded, plain
}
