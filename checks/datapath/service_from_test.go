package datapath

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
)

// podOf connects a new Pod's namespace to the node's bridge cni0, and returns it with the file of its namespace.
func podOf(t *testing.T, node *netns.Namespace, number byte) (pod *netns.Namespace, path string) {
	t.Helper()
	pod = newNetns(t)
	link := fmt.Sprintf("veth%d", number)
	addLink(t, node, link, "", pod, "eth0", fmt.Sprintf("10.244.0.%d/24", number))
	runIn(t, node, "ip", "link", "set", link, "master", "cni0")
	runIn(t, pod, "ip", "route", "add", "default", "via", "10.244.0.1")
	must(t, pod.Do(deadline(t), func() error {
		path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		return nil
	}))
	return pod, path
}

// TestServiceFromPod checks that a probe from a Pod finds that replies of a same-node Service are lost, which a probe from the
// node cannot, and that it takes the endpoints from the node's conntrack.
func TestServiceFromPod(t *testing.T) {
	node := newNode(t)
	_, client := podOf(t, node, 2)
	server, _ := podOf(t, node, 3)
	listen(t, server, "10.244.0.3:8080")
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		runIn(t, node, "iptables", "-t", "nat", "-A", chain, "-d", service, "-p", "tcp", "--dport", "80", "-j", "DNAT",
			"--to-destination", "10.244.0.3:8080")
	}
	for range 100 { // the kernel may open a new port of the bridge up to a second late (linkwatch)
		r, err := serviceIn(deadline(t), node, service+":80", ServiceOptions{N: 1, Timeout: 300 * time.Millisecond})
		if must(t, err); r.Failed == 0 {
			break
		}
	}
	for _, c := range []struct {
		call, from string
		failed     int
	}{{"0", "", 0}, {"0", client, 5}, {"1", client, 0}} {
		sysctl(t, node, callKey, c.call)
		r, err := serviceIn(deadline(t), node, service+":80", ServiceOptions{N: 5, Netns: c.from, Timeout: 300 * time.Millisecond})
		must(t, err)
		var text bytes.Buffer
		must(t, r.Render(&text))
		first, _, _ := strings.Cut(text.String(), "\n")
		warned := strings.Contains(first, "cannot show faults between Pods of one node")
		if r.Failed != c.failed || r.OfNode != (c.from == "") || warned != r.OfNode {
			t.Errorf("call %s, from %q: %d failed, of the node %v\n%s", c.call, c.from, r.Failed, r.OfNode, &text)
		}
		if len(r.Endpoints) != 1 || r.Endpoints[0].Address != addrPort("10.244.0.3:8080") {
			t.Errorf("call %s, from %q: endpoints %+v", c.call, c.from, r.Endpoints)
		}
	}
	if _, err := serviceIn(deadline(t), node, service+":80", ServiceOptions{N: 1, Netns: "/run/netns/none"}); err == nil {
		t.Error("no error for a missing namespace")
	}
}
