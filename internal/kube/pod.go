package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
)

// Pod holds the addresses of a Pod and of its node, as the API has them.
type Pod struct {
	Addresses []netip.Addr
	Host      netip.Addr // zero if it is not scheduled
}

// Pod returns a Pod's addresses.
func (c *Client) Pod(ctx context.Context, namespace, name string) (Pod, error) {
	var object struct {
		Status struct {
			HostIP string
			PodIPs []struct{ IP string }
		}
	}
	err := c.sendJSON(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods/"+name, "", nil, func(r io.Reader) error {
		return json.NewDecoder(r).Decode(&object)
	})
	if err != nil {
		return Pod{}, fmt.Errorf("reading Pod %s/%s: %w", namespace, name, err)
	}
	var p Pod
	p.Host, _ = netip.ParseAddr(object.Status.HostIP)
	for _, one := range object.Status.PodIPs {
		if ip, err := netip.ParseAddr(one.IP); err == nil {
			p.Addresses = append(p.Addresses, ip)
		}
	}
	if len(p.Addresses) == 0 {
		return p, fmt.Errorf("the API lacks an address of Pod %s/%s: it is not running yet, or has ended", namespace, name)
	}
	return p, nil
}
