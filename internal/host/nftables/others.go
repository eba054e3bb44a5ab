package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// Others has the nf_tables objects of other programs that affect Kubernetes.
type Others struct {
	// Drops are the base chains of hook forward that drop every new packet, named as in `nft list
	// ruleset`: "inet filter forward: policy drop". Chains with rules that nodegate would have to
	// follow are left out, and so are iptables-nft's chains.
	Drops []string `json:"drops,omitempty"`
	// Unlistable are sets and maps whose user data crashes nft before 1.1.2: "inet filter allowed".
	Unlistable []string `json:"unlistable,omitempty"`
}

// ReadOthers reads these objects. It fails with ErrTorn if they change too often to be read. It
// needs CAP_NET_ADMIN.
func ReadOthers(ctx context.Context) (o Others, err error) {
	c, err := dial(ctx, unix.NFPROTO_UNSPEC)
	if err != nil {
		return o, err
	}
	defer c.close()
	for range tries {
		if o, err = c.others(); !errors.Is(err, ErrTorn) {
			break
		}
	}
	return o, err
}

func (c *conn) others() (Others, error) {
	var o Others
	c.family = unix.NFPROTO_UNSPEC
	err := c.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, nil, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		if err == nil && typedByValue(a[unix.NFTA_SET_USERDATA]) {
			o.Unlistable = append(o.Unlistable, named(b[0], a[unix.NFTA_SET_TABLE], a[unix.NFTA_SET_NAME]))
		}
		return err
	})
	if err != nil {
		return o, fmt.Errorf("listing the sets of nf_tables: %w", err)
	}
	dormant, err := c.dormant()
	if err != nil {
		return o, err
	}
	var chains []forwardChain
	err = c.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nil, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		if err != nil || a[unix.NFTA_CHAIN_HOOK] == nil {
			return err
		}
		hook, err := split(a[unix.NFTA_CHAIN_HOOK])
		f := forwardChain{b[0], text(a[unix.NFTA_CHAIN_TABLE]), text(a[unix.NFTA_CHAIN_NAME]), number(a[unix.NFTA_CHAIN_POLICY])}
		ip := slices.Contains([]byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6, unix.NFPROTO_INET}, f.family)
		if dormant[named(f.family, []byte(f.table), nil)] {
			return nil
		}
		if ip && number(hook[unix.NFTA_HOOK_HOOKNUM]) == unix.NF_INET_FORWARD && f.table != ruleset.KubeProxyTable && f.name != "FORWARD" {
			chains = append(chains, f)
		}
		return err
	})
	if err != nil {
		return o, fmt.Errorf("listing the chains of nf_tables: %w", err)
	}
	for _, f := range chains {
		how, err := c.dropsNew(f)
		if err != nil && !errors.Is(err, unix.ENOENT) { // deleted since
			return o, fmt.Errorf("reading chain %s of nf_tables: %w", f.name, err)
		}
		if how != "" {
			o.Drops = append(o.Drops, named(f.family, []byte(f.table), []byte(f.name))+": "+how)
		}
	}
	return o, nil
}

// ForwardPolicies returns the chains of hook forward for IPv4 whose policy is drop, iptables-nft's FORWARD among them:
// "ip filter FORWARD". It needs CAP_NET_ADMIN.
func ForwardPolicies(ctx context.Context) (chains []string, err error) {
	c, err := dial(ctx, unix.NFPROTO_UNSPEC)
	if err != nil {
		return nil, err
	}
	defer c.close()
	dormant, err := c.dormant()
	if err != nil {
		return nil, err
	}
	err = c.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nil, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		if err != nil || a[unix.NFTA_CHAIN_HOOK] == nil || a[unix.NFTA_CHAIN_POLICY] == nil || b[0] == unix.NFPROTO_IPV6 ||
			dormant[named(b[0], a[unix.NFTA_CHAIN_TABLE], nil)] {
			return err
		}
		hook, err := split(a[unix.NFTA_CHAIN_HOOK])
		if number(hook[unix.NFTA_HOOK_HOOKNUM]) == unix.NF_INET_FORWARD && number(a[unix.NFTA_CHAIN_POLICY]) == nfDrop {
			chains = append(chains, named(b[0], a[unix.NFTA_CHAIN_TABLE], a[unix.NFTA_CHAIN_NAME]))
		}
		return err
	})
	return chains, err
}

// dormant returns the tables whose chains are not in the hooks.
func (c *conn) dormant() (map[string]bool, error) {
	const flag = 1 // NFT_TABLE_F_DORMANT
	tables := map[string]bool{}
	err := c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, nil, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		if err == nil && number(a[unix.NFTA_TABLE_FLAGS])&flag != 0 {
			tables[named(b[0], a[unix.NFTA_TABLE_NAME], nil)] = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the tables of nf_tables: %w", err)
	}
	return tables, nil
}

type forwardChain struct {
	family      byte
	table, name string
	policy      uint32 // NF_DROP, NF_ACCEPT
}

// The verdicts of a rule (include/uapi/linux/netfilter.h and nf_tables.h).
const (
	nfDrop   = 0
	nfAccept = 1
	nfReturn = 0xfffffffb
	stateNew = 8 // NF_CT_STATE_BIT(IP_CT_NEW)
)

// dropsNew returns how a chain drops every new packet: by its policy, or by a rule without a
// condition. It returns "" if a rule may accept a packet or leads elsewhere.
func (c *conn) dropsNew(f forwardChain) (how string, err error) {
	c.family = f.family
	ended := false
	about := []attribute{called(unix.NFTA_RULE_TABLE, f.table), called(unix.NFTA_RULE_CHAIN, f.name)}
	err = c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, about, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		if err != nil || ended {
			return err
		}
		r, err := readRule(a[unix.NFTA_RULE_EXPRESSIONS])
		switch {
		case err != nil:
			return err
		case r.elsewhere, r.accepts && !r.onlyOld, r.returns && r.always:
			ended = true
		case r.drops != "" && r.always:
			ended, how = true, r.drops
		}
		return nil
	})
	if err == nil && !ended && f.policy == nfDrop {
		how = "policy drop"
	}
	return how, err
}

// rule is the effect of a rule on a new packet.
type rule struct {
	always    bool   // without a condition
	onlyOld   bool   // its condition excludes new connections
	accepts   bool   // its verdict
	returns   bool   // returns to the policy
	drops     string // drop, reject
	elsewhere bool   // jumps, or has another verdict elsewhere in the rule
}

func readRule(expressions []byte) (rule, error) {
	r := rule{always: true}
	state := false
	for len(expressions) > 0 {
		_, one, rest, err := nlattr.Next(expressions)
		if err != nil {
			return r, err
		}
		expressions = rest
		e, err := split(one)
		if err != nil {
			return r, err
		}
		data, err := split(e[unix.NFTA_EXPR_DATA])
		if err != nil {
			return r, err
		}
		switch text(e[unix.NFTA_EXPR_NAME]) {
		case "counter", "log":
		case "reject":
			r.drops = "reject"
		case "immediate":
			value, err := split(data[unix.NFTA_IMMEDIATE_DATA])
			if err != nil {
				return r, err
			}
			verdict, err := split(value[unix.NFTA_DATA_VERDICT])
			if err != nil || value[unix.NFTA_DATA_VERDICT] == nil {
				return r, err
			}
			switch number(verdict[unix.NFTA_VERDICT_CODE]) {
			case nfDrop:
				r.drops = "drop"
			case nfAccept:
				r.accepts = true
			case nfReturn:
				r.returns = true
			default:
				r.elsewhere = true
			}
		case "ct":
			r.always, state = false, number(data[unix.NFTA_CT_KEY]) == unix.NFT_CT_STATE
		case "bitwise":
			mask, err := split(data[unix.NFTA_BITWISE_MASK])
			if err != nil {
				return r, err
			}
			if bits := mask[unix.NFTA_DATA_VALUE]; state && len(bits) == 4 {
				r.onlyOld = binary.NativeEndian.Uint32(bits)&stateNew == 0
			}
			r.always = false
		case "lookup":
			r.always, r.elsewhere = false, r.elsewhere || data[unix.NFTA_LOOKUP_DREG] != nil // a map of verdicts
		default:
			r.always = false
		}
	}
	return r, nil
}

// typedByValue reports whether a set's user data gives its type by a bare value: a nested typeof (3
// for the key, 4 for the data) whose expression (0) is EXPR_VALUE (4). nft 1.1.2 and later write
// that for `type`; older versions dereference a null pointer when they read it (kubernetes#136786;
// the enumerations are in nftables' rule.h and expression.h).
func typedByValue(userData []byte) bool {
	const keyTypeof, dataTypeof, expression, value = 3, 4, 0, 4
	for kind, nested := range tlv(userData) {
		if kind != keyTypeof && kind != dataTypeof {
			continue
		}
		for kind, b := range tlv(nested) {
			if kind == expression && len(b) == 4 && binary.NativeEndian.Uint32(b) == value {
				return true
			}
		}
	}
	return false
}

// tlv iterates over libnftnl's user data: a type byte, a length byte, the content.
func tlv(b []byte) func(yield func(byte, []byte) bool) {
	return func(yield func(byte, []byte) bool) {
		for len(b) >= 2 && len(b) >= 2+int(b[1]) {
			if !yield(b[0], b[2:2+int(b[1])]) {
				return
			}
			b = b[2+int(b[1]):]
		}
	}
}

// attributes are one message's or nest's, by their type; nil if absent.
type attributes [unix.NFTA_SET_USERDATA + 1][]byte

func split(b []byte) (a attributes, err error) {
	err = nlattr.Split(b, a[:])
	return a, err
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

func number(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func named(family byte, table, name []byte) string {
	families := map[byte]string{
		unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge",
		unix.NFPROTO_NETDEV: "netdev",
	}
	return families[family] + " " + text(table) + " " + text(name)
}
