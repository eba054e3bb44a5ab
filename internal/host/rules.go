package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/ipvs"
	"nodegate/internal/host/netns"
	"nodegate/internal/host/nftables"
	"nodegate/internal/host/program"
	"nodegate/internal/host/xtables"
	"nodegate/internal/ruleset"
)

// Rulesets reads and parses the rules of every packet filter backend: one set for each backend with
// rules. The sets are shared, so callers must not change them. A host made by Once reads them only
// once.
func (h *Host) Rulesets(ctx context.Context) ([]*ruleset.Set, error) {
	rules := h.Rules
	if a, is := rules.(askedRules); is && h.memo.absent == nil && !h.memo.keeps {
		rules = a.Rules
	}
	sets, err := derived(ctx, h.memo, "rule sets", func() ([]*ruleset.Set, error) { return readRulesets(ctx, rules) })
	return slices.Clone(sets), err
}

func readRulesets(ctx context.Context, rules Rules) ([]*ruleset.Set, error) {
	var sets []*ruleset.Set
	note := ""
	parse := func(source string, r io.Reader) error {
		said := note
		note = ""
		set, err := ruleset.Parse(source, r)
		if errors.Is(err, ruleset.ErrNoRules) {
			return nil // an unused backend prints nothing
		}
		if err != nil {
			return fmt.Errorf("reading the output of %s: %w", source, err)
		}
		set.Note = said
		sets = append(sets, set)
		return nil
	}
	if _, is := rules.(machineRules); !is {
		err := rules.Dumps(ctx, parse)
		return sets, err
	}
	switch virtual, err := ipvs.Read(ctx); {
	case err == nil:
		sets = append(sets, &ruleset.Set{Source: "netlink: IPVS", IPVS: virtual})
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	noted := func(text string) { note = text }
	if !mayQueryNFTables() {
		err := dumpRules(ctx, parse, noted, nil)
		return sets, err
	}
	err := dumpRules(ctx, parse, noted, func(family string) error {
		t, err := nftables.Read(ctx, family)
		switch {
		case err == nil:
			sets = append(sets, &ruleset.Set{Source: "netlink: " + tableName(family), NFT: []*ruleset.NFTTable{t}})
			return nil
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported):
			return nil
		case errors.Is(err, fs.ErrPermission) || ctx.Err() != nil:
			return fmt.Errorf("reading %s over netlink: %w", tableName(family), err)
		}
		noted(fmt.Sprintf("%s was read by nft -j, which is slower and needs more memory; reading it over netlink failed: %v",
			tableName(family), err))
		return program.Stream(ctx, parse, "nft", printTable(family)...)
	})
	return sets, err
}

func tableName(family string) string { return "table " + family + " " + ruleset.KubeProxyTable }

func printTable(family string) []string {
	return []string{"-j", "list", "table", family, ruleset.KubeProxyTable}
}

// RulesGeneration returns a string that differs whenever the rules of the packet filter differ. It
// uses nftables' generation (NFTA_GEN_ID in the kernel's include/uapi/linux/netfilter/nf_tables.h),
// which iptables-nft shares. Tables of the legacy backend have no generation: their layout does not
// change when a rule replaces another one of the same size, so sure is then false. The string is ""
// if IPVS is in use. RulesGeneration needs CAP_NET_ADMIN.
func (h *Host) RulesGeneration(ctx context.Context) (generation string, sure bool, err error) {
	if used, err := ipvs.InUse(ctx); used || err != nil {
		return "", false, err
	}
	legacy := ""
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		names, err := h.Files.ReadFile(xtables.Names(family))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false, err
		}
		for _, table := range strings.Fields(string(names)) {
			layout, err := xtables.Layout(family == ruleset.IPv6, table)
			if err != nil {
				return "", false, err
			}
			legacy += family + " " + table + " " + layout + "\n"
		}
	}
	if legacy != "" && !mayQueryNFTables() {
		return legacy, false, nil
	}
	generation, err = nftables.Generation(ctx)
	switch {
	case errors.Is(err, unix.EINVAL) && legacy != "": // the kernel lacks nf_tables
		return legacy, false, nil
	case err != nil:
		return "", false, err
	}
	return legacy + generation, legacy == "", nil
}

// Others has the nf_tables objects of other programs that affect Kubernetes.
type Others = nftables.Others

func (machineRules) Others(ctx context.Context) (Others, error) {
	if !mayQueryNFTables() {
		return Others{}, nil
	}
	return nftables.ReadOthers(ctx)
}

// machineRules reads the machine's own rules, of all backends: an older kube-proxy may have left
// rules in another backend.
type machineRules struct{}

// Dumps prints kube-proxy's tables with nft, because a text can be recorded.
func (machineRules) Dumps(ctx context.Context, read func(source string, r io.Reader) error) error {
	noted := func(string) {}
	if _, err := program.Find("nft"); err != nil {
		return dumpRules(ctx, read, noted, nil)
	}
	return dumpRules(ctx, read, noted, func(family string) error {
		tables, err := program.Run(ctx, "nft", "list", "tables", family)
		if err != nil || !bytes.Contains(tables, []byte(tableName(family)+"\n")) {
			return err
		}
		return program.Stream(ctx, read, "nft", printTable(family)...)
	})
}

// dumpRules never passes a table name to iptables-legacy-save, because that would create the table.
// It calls table for both families, unless it is nil.
func dumpRules(ctx context.Context, read func(source string, r io.Reader) error, noted func(string),
	table func(family string) error) error {
	var errs []error
	ran := 0
	ask := mayQueryNFTables()
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		name := map[string]string{ruleset.IPv4: "iptables", ruleset.IPv6: "ip6tables"}[family]
		legacy := xtables.SaveProgram(name)
		programs := []string{name + "-nft-save", legacy}
		if _, err := program.Find(programs[0]); err != nil || ask {
			programs = programs[1:]
		}
		if ask {
			ran++
			err := iptablesNFT(ctx, family, name+"-nft", read)
			if errors.Is(err, fs.ErrPermission) {
				return err // the other readings would be refused too
			}
			errs = append(errs, err)
		}
		for _, save := range programs {
			if _, err := program.Find(save); err != nil {
				continue
			}
			ran++
			if !strings.HasSuffix(save, "-legacy-save") || xtables.Used(family) {
				errs = append(errs, program.Stream(ctx, read, save))
			}
		}
		if _, err := program.Find(legacy); err != nil {
			errs = append(errs, xtables.Unprinted(family, legacy))
		}
	}
	if table != nil {
		ran++
		errs = append(errs, table(ruleset.IPv4), table(ruleset.IPv6))
	}
	if ran == 0 {
		errs = append(errs, errors.New("neither iptables nor nft is installed, so no program can print the rules"))
	}
	return errors.Join(errs...)
}

// iptablesNFT reads the tables of iptables-nft over netlink. If it does not know a rule, the save
// program reads all of them.
func iptablesNFT(ctx context.Context, family, name string, read func(string, io.Reader) error) error {
	err := nftables.Save(ctx, family, func(r io.Reader) error { return read("netlink: "+name, r) })
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) || ctx.Err() != nil {
		return fmt.Errorf("reading the rules of %s over netlink: %w", name, err)
	}
	err = fmt.Errorf("reading them over netlink failed: %w", err)
	if failed := program.Stream(ctx, read, name+"-save"); failed != nil {
		return fmt.Errorf("reading the rules of %s: %w; %w", name, failed, err)
	}
	return nil
}

// Takes needs CAP_SYS_ADMIN.
func (machineRules) Takes(ctx context.Context, name, whole string, texts []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 12*time.Second)
	defer cancel()
	if _, err := program.Find(name); err != nil {
		return nil, err
	}
	n, err := netns.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("trying rules of %s: %w", name, err)
	}
	defer n.Close()
	arguments := []string{"-w", "1"} // all namespaces share the legacy backend's lock
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
