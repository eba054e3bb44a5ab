package host

import (
	"bytes"
	"context"
	"errors"
	"io"

	"nodegate/internal/host/program"
)

// machineRules runs the machine's own iptables and nft. Looking at one backend
// only would miss rules that an older kube-proxy left in the other.
type machineRules struct{}

// Dumps never gives iptables-legacy-save a table: it would create it.
func (machineRules) Dumps(ctx context.Context, read func(source string, r io.Reader) error) error {
	var errs []error
	ran := 0
	for _, family := range []string{"iptables", "ip6tables"} {
		backends := []string{family + "-nft-save", family + "-legacy-save"}
		if _, err := program.Find(backends[0]); err != nil {
			backends = []string{family + "-save"} // before 1.8 there is one
		}
		for _, save := range backends {
			if _, err := program.Find(save); err != nil {
				continue
			}
			ran++
			errs = append(errs, program.Stream(ctx, read, save))
		}
	}
	if _, err := program.Find("nft"); err == nil {
		ran++
		tables, err := program.Run(ctx, "nft", "list", "tables")
		errs = append(errs, err)
		for _, family := range []string{"ip", "ip6"} {
			if bytes.Contains(tables, []byte("table "+family+" kube-proxy\n")) {
				errs = append(errs, program.Stream(ctx, read, "nft", "-j", "list", "table", family, "kube-proxy"))
			}
		}
	}
	if ran == 0 {
		return errors.New("neither iptables nor nft is installed: there is nothing that could tell the rules")
	}
	return errors.Join(errs...)
}
