package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/program"
)

// scratchChain is the chain in which a rule is tried.
const scratchChain = "NODEGATE-PROBE"

// Takes needs CAP_SYS_ADMIN.
func (machineRules) Takes(ctx context.Context, name, whole string, texts []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := program.Find(name); err != nil {
		return nil, err
	}
	n, err := netns.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("trying rules of %s: %w", name, err)
	}
	defer n.Close()
	arguments := []string{"-w", "1"} // the legacy backend has one lock for all namespaces
	if name == "nft" {
		arguments = []string{"-f", "-"}
	}
	rejected := make([]string, len(texts))
	err = n.Do(ctx, func() error {
		if program.Feed(ctx, whole, name, arguments...) == nil {
			return nil
		}
		for i, text := range texts {
			if err := program.Feed(ctx, text, name, arguments...); err != nil {
				rejected[i] = err.Error()
			}
		}
		return ctx.Err()
	})
	return rejected, err
}

// Accepts tries the rule in table mangle of a namespace that ends with the attempt.
// It needs CAP_SYS_ADMIN. A kernel that does not have the rule's module yet loads
// it, as for any rule.
func (machineRules) Accepts(ctx context.Context, iptables string, rule ...string) (rejected string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n, err := netns.New(ctx)
	if err != nil {
		return "", fmt.Errorf("trying a rule of %s: %w", iptables, err)
	}
	defer n.Close()
	err = n.Do(ctx, func() error {
		// The legacy backend has one lock for all namespaces.
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
		// A rule that every kernel accepts distinguishes "not this rule" from "no
		// rule at all".
		if err := chain("-A", "-j", "RETURN"); err != nil {
			return err
		}
		rejected = said.Error()
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("trying %s %s: %w", iptables, strings.Join(rule, " "), err)
	}
	return rejected, nil
}
