package proxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/audit/model"
)

// recordedAs returns recordedFields in IPv6 or with SCTP: addresses, protocols and the hashes that contain them are
// replaced.
func recordedAs(t *testing.T, mode string, ipv6, sctp bool) (rules, svcs, eps string) {
	t.Helper()
	rules, svcs, eps = recordedFields(t, mode)
	var protocols, names, addresses []string
	if sctp {
		protocols = []string{"-p tcp", "-p sctp", "-m tcp", "-m sctp", `"tcp"`, `"sctp"`, "/tcp/", "/sctp/", `"TCP"`, `"SCTP"`}
	}
	if ipv6 {
		addresses = []string{`"IPv4"`, `"IPv6"`, `"family": "ip"`, `"family": "ip6"`, `"protocol": "ip"`, `"protocol": "ip6"`,
			"iptables-save", "ip6tables-save", "icmp-port-unreachable", "icmp6-port-unreachable"}
	}
	replace := func(text string) string {
		lines := strings.Split(strings.NewReplacer(addresses...).Replace(text), "\n")
		for i, l := range lines {
			if !strings.Contains(l, " health check node port") { // load balancers query it with TCP
				lines[i] = strings.NewReplacer(protocols...).Replace(l)
			}
		}
		text = strings.Join(lines, "\n")
		if ipv6 {
			text = inIPv6(text)
		}
		return text
	}
	for _, l := range strings.Split(rules, "\n") { // chains of iptables mode
		words := strings.Fields(l)
		if len(words) < 2 || words[0] != "-A" {
			continue
		}
		kind, hash := model.ServiceChain(words[1])
		proto, service := "tcp", serviceOf(l)
		if sctp {
			proto = "sctp"
		}
		parts := []string{service, proto}
		switch to := strings.TrimPrefix(words[len(words)-1], "DNAT "); {
		case kind == "" || service == "":
			continue
		case kind == "SEP" && !strings.Contains(l, "--to-destination"):
			continue
		case kind == "SEP":
			parts = append(parts, replace(to))
		}
		var h model.Hasher
		names = append(names, hash, string(h.Sum16(parts...)))
	}
	rules, svcs, eps = replace(rules), replace(svcs), replace(eps)
	rules = strings.NewReplacer(names...).Replace(rules)
	rules = regexp.MustCompile(`-[A-Z0-9]{8}-([a-z-]+/[^"]*)"`).ReplaceAllStringFunc(rules, func(name string) string { // and of nftables mode
		var h model.Hasher
		base := strings.TrimSuffix(name[10:], `"`)
		if ipv6 {
			base = regexp.MustCompile(`__\[?([0-9a-f:]+)\]?/`).ReplaceAllStringFunc(base, func(s string) string {
				return strings.ReplaceAll(strings.Trim(s, "[]"), ":", ".")
			})
		}
		return "-" + string(h.Sum16(base)[:8]) + "-" + base + `"`
	})
	if ipv6 {
		rules = regexp.MustCompile(`(?m)^-A KUBE-(NODEPORTS|FIREWALL) .*7f00:0?/.*\n`).ReplaceAllString(rules, "")
	}
	return rules, svcs, eps
}

// inIPv6 maps each IPv4 address of a text to fd00::a.b.c.d, as the kernel writes it.
func inIPv6(text string) string {
	text = strings.ReplaceAll(text, "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	text = regexp.MustCompile(`"len": \d+`).ReplaceAllStringFunc(text, func(s string) string { return `"len": ` + fmt.Sprint(96+atoi(s[7:])) })
	return regexp.MustCompile(`(\d{1,3}\.){3}\d{1,3}(/\d+\b|:\d+\b)?`).ReplaceAllStringFunc(text, func(s string) string {
		address, more := s, ""
		if i := strings.IndexAny(s, "/:"); i > 0 {
			address, more = s[:i], s[i:]
		}
		a, err := netip.ParseAddr(address)
		if err != nil {
			return s
		}
		var b [16]byte
		b[0] = 0xfd
		v4 := a.As4()
		binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(v4[:]))
		six := netip.AddrFrom16(b).String()
		if strings.HasPrefix(more, ":") {
			return "[" + six + "]" + more
		}
		if strings.HasPrefix(more, "/") && len(more) <= len("/32") {
			more = fmt.Sprint("/", 96+atoi(more[1:]))
		}
		return six + more
	})
}
