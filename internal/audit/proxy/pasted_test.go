package proxy

import (
	"regexp"
	"strings"
	"testing"
)

// TestPasted covers rules as people paste them: they are judged as they are in the kernel, or not at all.
func TestPasted(t *testing.T) {
	save, nft := readFile(t, "iptables-save.txt"), readFile(t, "nft-list-ruleset.json")
	lines := func(keep string) string {
		var kept []string
		for _, l := range strings.Split(save, "\n") {
			if regexp.MustCompile(keep).MatchString(l) {
				kept = append(kept, l)
			}
		}
		return "*nat\n" + strings.Join(kept, "\n") + "\nCOMMIT\n"
	}
	address := regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`)
	unnamed := strings.NewReplacer(`"tcp"`, "6", `"udp"`, "17").Replace(nft)
	unnamed = regexp.MustCompile(`"protocol": (6|17)`).ReplaceAllString(unnamed, `"protocol": "th"`)
	for _, c := range []struct{ what, rules, want string }{
		{"protocols as numbers", unnamed, ""},
		{"protocols as numbers, iptables", strings.NewReplacer("-p tcp", "-p 6", "-p udp", "-p 17").Replace(save), ""},
		{"rules without declarations", lines("^-A (PREROUTING|KUBE-(SERVICES|SVC|SEP)).*(portals|prod/np)"), partial},
		{"rules with some declarations", lines("^(:|-A )KUBE-SVC-7FSGN2D7XFJNQ2EL "), partial},
		{"one chain of IPVS mode left over", strings.Replace(save, ":KUBE-POSTROUTING", ":KUBE-LOAD-BALANCER - [0:0]\n:KUBE-POSTROUTING", 1), ""},
		{"destinations that iptables could not print", regexp.MustCompile(`--to-destination 100.96.1.[123]:80`).ReplaceAllString(save,
			"--to-destination  --random --to-destination  --random --to-destination 0.0.0.0:0"), "kubeproxy.rule.unreadable"},
		{"addresses replaced by words", address.ReplaceAllString(save, "<redacted>"), partial},
		{"without comments", regexp.MustCompile(` -m comment --comment ("[^"]*"|\S+)`).ReplaceAllString(save, ""), partial},
		{"addresses masked", address.ReplaceAllString(save, "10.x.x.4"), partial},
		{"Pods of another range", strings.ReplaceAll(save, "100.96.", "10.99."), partial},
		{"Services of other names", regexp.MustCompile(`--comment "?[a-z-]+/[a-z-]+`).ReplaceAllStringFunc(save, func(s string) string {
			return s[:strings.IndexByte(s, '/')+1] + "x"
		}), partial},
	} {
		t.Run(c.what, func(t *testing.T) { wantOne(t, Judge(mustParse(t, c.rules), Options{Pasted: true}), c.want) })
	}
}
