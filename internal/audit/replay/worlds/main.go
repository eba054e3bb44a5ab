// Command replica sends flows through a replica of the network in which it runs, and prints the lost flows with their causes. The worlds of
// the harness compare its answer with what the real packets did.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/replay"
	"nodegate/internal/host/replica"
)

type input struct {
	Cluster *replay.Cluster // its flows are sent if Flows is empty
	Pods    [][]netip.Addr
	Flows   []struct {
		Name, From, To, Protocol string
		Big, Outside             bool
		Want                     []netip.AddrPort
	}
}

type output struct {
	Lost  map[string]string  `json:"lost"`
	Left  map[string]string  `json:"left"`
	Who   map[string]int     `json:"who"`
	Notes []string           `json:"notes"`
	T     map[string]float64 `json:"t"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	spec := replica.Spec{}
	for _, p := range in.Pods {
		spec.Pods = append(spec.Pods, replica.Pod{Addresses: p})
	}
	var flows []replay.Flow
	for _, f := range in.Flows {
		to, err := netip.ParseAddrPort(f.To)
		if err != nil {
			return err
		}
		one := replay.Flow{Name: f.Name, To: to, Protocol: unix.IPPROTO_TCP, Big: f.Big, Want: f.Want, Outside: f.Outside, Hidden: f.Outside}
		if f.Protocol == "udp" {
			one.Protocol = unix.IPPROTO_UDP
		}
		if one.From.Node = f.From == ""; !one.From.Node {
			if one.From.Address, err = netip.ParseAddr(f.From); err != nil {
				return err
			}
		}
		flows = append(flows, one)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out := output{Lost: map[string]string{}, Left: map[string]string{}, Who: map[string]int{}, Notes: []string{}, T: map[string]float64{}}
	start := time.Now()
	took := func(what string) {
		out.T[what] = float64(time.Since(start).Milliseconds()) / 1000
		start = time.Now()
	}
	c, err := replica.Read(ctx, func(ports []string) map[string]bool {
		all := map[string]bool{}
		for _, p := range ports {
			all[p] = true
		}
		return all
	})
	if err != nil {
		return err
	}
	took("capture")
	if in.Cluster != nil {
		in.Cluster.Pods = spec.Pods
		flows = in.Cluster.Flows(c.Masquerades)
	}
	spec.Ports = replay.Ports(flows)
	r, err := replica.Build(ctx, c, &spec)
	if err != nil {
		return err
	}
	took("build")
	outcomes, err := replay.New(r).Run(ctx, flows)
	took("flows")
	out.Notes = append(out.Notes, r.Refused...)
	for _, o := range outcomes {
		if o.Link != "" {
			out.Left[o.Flow.Name] = o.Link
		}
		if o.Doubt != "" {
			out.Left[o.Flow.Name] = o.Doubt
		}
		if o.Lost > 0 {
			out.Lost[o.Flow.Name] = fmt.Sprintf("%d/%d %s", o.Lost, o.Sent, o.Why)
		} else if o.Link == "" {
			continue
		}
		who := "not named"
		if o.Part >= 0 {
			who = fmt.Sprintf("%v (cured %v)", &c.Parts[o.Part], o.Cured)
		}
		out.Who[who]++
	}
	r.Close()
	took("gone")
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		out.T["cpu"] = float64((time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Milliseconds()) / 1000
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return err
	}
	return err
}
