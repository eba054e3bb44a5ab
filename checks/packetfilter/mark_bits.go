package packetfilter

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// markBits detects two programs that use one bit of the packet mark for different purposes.
func markBits() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.mark-bits", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "Two of kube-proxy, kube-router, Calico, Cilium, Tailscale and the CNI's portmap use the same bit of the packet mark.",
		Symptom: "Packets of Pods are wrongly masqueraded, accepted or dropped, but only while both programs run.",
		How: "The bits of every --mark, --set-mark and --set-xmark are collected for each program, by the names of its chains, in all tables " +
			"of all iptables backends; the bits of two programs overlap. By default, Tailscale uses 0xff0000 and Calico 0xffff0000.",
		Remedy: "give one of them other bits: Calico's iptablesMarkMask (FelixConfiguration) or kube-proxy's " +
			"iptables.masqueradeBit; Tailscale's bits are fixed",
		TradeOff: "Calico needs at least four bits, and more for more interfaces.",
		Ref:      "https://github.com/fwmark/registry",
		Inspect:  inspectMarkBits,
	}
}

func inspectMarkBits(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("no shared bits")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	used := map[string]uint64{}
	for _, set := range sets {
		for _, save := range set.Saves {
			for _, t := range save.Tables {
				for _, c := range t.Chains {
					if owner, bits := chainOwner(c.Name), usedMarkBits(c); owner != "" && bits != 0 {
						used[owner] |= bits
					}
				}
			}
		}
	}
	if len(used) < 2 {
		s.Skip = "at most one program uses marks"
		return s, nil
	}
	owners := slices.Sorted(maps.Keys(used))
	var got []string
	for i, a := range owners {
		s.Evidence = append(s.Evidence, checks.Seen("iptables-save", fmt.Sprintf("%s uses %#x", a, used[a])))
		for _, b := range owners[i+1:] {
			if both := used[a] & used[b]; both != 0 {
				got = append(got, fmt.Sprintf("%s and %s share %#x", a, b, both))
			}
		}
	}
	if got != nil {
		s.Differs(strings.Join(got, ", "), "")
	}
	return s, nil
}

// chainOwner returns the program that a chain belongs to by its name, or "".
func chainOwner(chain string) string {
	for _, known := range [][2]string{ // kube-router runs beside kube-proxy or replaces it
		{"KUBE-ROUTER-", "kube-router"}, {"KUBE-POD-FW-", "kube-router"}, {"KUBE-NWPLCY-", "kube-router"}, {"KUBE-", "kube-proxy"},
		{"cali-", "Calico"}, {"ts-", "Tailscale"}, {"CILIUM_", "Cilium"}, {"CNI-HOSTPORT", "portmap"},
	} {
		if strings.HasPrefix(chain, known[0]) {
			return known[1]
		}
	}
	return ""
}

// markPattern is compiled on first use: most runs do not need it.
var markPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`--(?:set-x?mark|mark) 0x([0-9a-fA-F]+)(?:/0x([0-9a-fA-F]+))?`)
})

// mostOfMark is the number of bits, of 32, from which a mask compares the whole mark: a program's own field is smaller.
const mostOfMark = 24

// usedMarkBits returns the bits of the mark that a chain's rules compare or set.
func usedMarkBits(c *ruleset.Chain) (used uint64) {
	for i := range c.Rules {
		for _, m := range markPattern().FindAllStringSubmatch(c.Rules[i].Text, -1) {
			value, _ := strconv.ParseUint(m[1], 16, 64) // the expression matches nothing else
			mask, _ := strconv.ParseUint(m[2], 16, 64)
			matches := strings.HasPrefix(m[0], "--mark")
			if mask == 0 || mask == 0xffffffff || matches && bits.OnesCount64(mask) >= mostOfMark {
				mask = value // xor, or the whole mark is replaced, or nearly all of it is compared, as Cilium does (0xfffffeff)
			}
			used |= mask
		}
	}
	return used
}
