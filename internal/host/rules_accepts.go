package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/program"
)

// scratchChain is where a rule is tried.
const scratchChain = "NODEGATE-PROBE"

// Takes tries the rule in table mangle of a namespace that ends with the try.
// It needs CAP_SYS_ADMIN. A machine whose kernel does not have the rule's module
// yet loads it, as for any rule.
func (machineRules) Accepts(ctx context.Context, iptables string, rule ...string) (refused string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n, err := netns.New(ctx)
	if err != nil {
		return "", fmt.Errorf("trying a rule of %s: %w", iptables, err)
	}
	defer n.Close()
	err = n.Do(ctx, func() error {
		// The lock of the legacy backend is one for all namespaces.
		chain := func(command string, more ...string) error {
			_, err := program.Run(ctx, iptables, append([]string{"-w", "1", "-t", "mangle", command, scratchChain}, more...)...)
			return err
		}
		if err := chain("-N"); err != nil {
			return err
		}
		said := chain("-A", rule...)
		if said == nil {
			return nil
		}
		// A rule that every kernel takes tells "not this rule" from "no rule at all".
		if err := chain("-A", "-j", "RETURN"); err != nil {
			return err
		}
		refused = said.Error()
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("trying %s %s: %w", iptables, strings.Join(rule, " "), err)
	}
	return refused, nil
}
