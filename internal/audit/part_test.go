package audit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

const recordings = "proxy/testdata/"

// TestPart loads recorded rules into the real kernel. For each Service, the part of the rules must be judged
// as all rules are.
func TestPart(t *testing.T) {
	for _, of := range []struct{ name, mode string }{
		{"iptables-save.txt", "iptables"}, {"fields-iptables.txt", "iptables"},
		{"nft-list-ruleset.json", "nftables"}, {"nft-1.36-form.json", "nftables"}, {"fields-nft.json", "nftables"},
	} {
		t.Run(of.name, func(t *testing.T) {
			inScratch(t, of.mode, readRecording(t, of.name), func(n *Machine) error {
				services, err := comparePart(t, n, "unchanged")
				if len(services) < 2 {
					t.Errorf("only the Services %q", services)
				}
				return err
			})
		})
	}
}

// TestPartDamaged damages the rules of one Service in different ways. The part must show the same as all rules.
func TestPartDamaged(t *testing.T) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		for mode, damages := range map[string]map[string]string{
			"iptables": {
				"missing":      "iptables -t nat -D KUBE-SERVICES 2",
				"doubled":      "iptables -t nat -I KUBE-SERVICES 1 -d ADDRESS -p tcp -m comment --comment \"NAME cluster IP\" -m tcp --dport 80 -j OTHER",
				"renamed":      "iptables -t nat -R KUBE-SERVICES 2 -d ADDRESS -p tcp -m comment --comment \"scale/other cluster IP\" -m tcp --dport 80 -j CHAIN",
				"half written": "iptables -t nat -D CHAIN 2",
				"empty":        "iptables -t nat -F CHAIN",
				"of another":   "iptables -t nat -A CHAIN -j OTHER",
			},
			"nftables": {
				"missing":      "nft delete element FAMILY kube-proxy service-ips { ADDRESS . tcp . 80 }",
				"doubled":      "nft add element FAMILY kube-proxy service-ips { OUTSIDE . tcp . 80 : goto CHAIN }",
				"half written": "nft flush chain FAMILY kube-proxy ENDPOINT",
				"empty":        "nft flush chain FAMILY kube-proxy CHAIN",
				"renamed":      "nft rename chain FAMILY kube-proxy CHAIN service-AAAAAAAA-scale/s1/tcp/",
			},
		} {
			for what, command := range damages {
				t.Run(family+"/"+mode+"/"+what, func(t *testing.T) {
					w := newScale(family, 5)
					text := w.nft()
					if mode == "iptables" {
						text = w.save()
					}
					inScratch(t, mode, text, func(n *Machine) error {
						before, err := judgeWhole(t, n)
						if err != nil {
							return err
						}
						if len(before.Services) != 5 || slices.ContainsFunc(before.Findings, func(f proxy.Finding) bool { return f.Service != "" }) {
							return fmt.Errorf("before: %d Services, findings %+v", len(before.Services), before.Findings)
						}
						program := map[string]string{ruleset.IPv4: "iptables-nft", ruleset.IPv6: "ip6tables-nft"}[family]
						command := strings.NewReplacer("iptables", program, "FAMILY", family, "ADDRESS", w.address(1), "OUTSIDE", w.address(200),
							"NAME", w.service(1), "CHAIN", w.chain(mode, 1), "OTHER", w.chain(mode, 2), "ENDPOINT", w.endpoint(1, 0)).Replace(command)
						if out, err := exec.Command("sh", "-c", strings.NewReplacer("{", "'{", "}", "}'").Replace(command)).CombinedOutput(); err != nil {
							return fmt.Errorf("%s: %w\n%s", command, err, out)
						}
						if _, err := comparePart(t, n, what); err != nil {
							return err
						}
						part, err := n.RulesOf(t.Context(), []string{w.service(1)})
						if err != nil {
							return err
						}
						state := before.State(proxy.ServicePort{Name: w.service(1), Family: family})
						if len(part.Findings) == 0 && part.State(proxy.ServicePort{Name: w.service(1), Family: family}) == state {
							t.Errorf("the part does not show the damage")
						}
						return nil
					})
				})
			}
		}
	}
}

// comparePart compares the part of each Service with all rules, and returns the Services.
func comparePart(t *testing.T, n *Machine, what string) ([]string, error) {
	t.Helper()
	whole, err := judgeWhole(t, n)
	if err != nil {
		return nil, err
	}
	var services []string
	for _, s := range whole.Services {
		services = append(services, proxy.ServicePort{Name: s.Name}.Service())
	}
	for _, f := range whole.Findings {
		if f.Service != "" {
			services = append(services, proxy.ServicePort{Name: f.Service}.Service())
		}
	}
	slices.Sort(services)
	services = slices.Compact(services)
	for _, name := range services {
		want := whole
		want.Services, want.Findings = slices.Clone(whole.Services), slices.Clone(whole.Findings)
		want.KeepOnly([]string{name})
		got, err := n.RulesOf(t.Context(), []string{name})
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", what, name, err)
		}
		if got.Version.Min > want.Version.Min || got.Version.Max < want.Version.Max {
			t.Errorf("%s: %s: the part is of version %s, all rules of %s", what, name, got.Version, want.Version)
		}
		if len(got.Services)+len(got.Findings) == 0 && slices.ContainsFunc(want.Findings, isPortal) {
			continue // the API has a Service that the part lacks
		}
		if a, b := describePart(&want), describePart(&got); a != b {
			t.Errorf("%s: %s: all rules show\n%s\nthe part\n%s", what, name, a, b)
		}
	}
	return services, nil
}

// isPortal reports whether a finding is about a Service to whose chains no rule leads. Only all rules show such chains.
func isPortal(f proxy.Finding) bool { return f.Name == "kubeproxy.service.portal" }

// describePart prints the Services without positions, and the names of the findings that explain a
// difference from the API.
func describePart(rep *proxy.Judgment) string {
	var b strings.Builder
	for _, s := range rep.Services {
		for _, list := range [][]proxy.Endpoint{s.Endpoints, s.LocalEndpoints} {
			for i := range list {
				list[i].Line = 0
			}
		}
		s.Chains, s.Findings = nil, nil // a chain without a reference is in no part
		fmt.Fprintf(&b, "%+v\n", s)
	}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Explains() {
			fmt.Fprintln(&b, f.Name, f.Service, f.Family)
		}
	}
	return b.String()
}

func judgeWhole(t *testing.T, n *Machine) (proxy.Judgment, error) {
	t.Helper()
	sets, err := n.Host.Rulesets(t.Context())
	if err != nil {
		return proxy.Judgment{}, err
	}
	rep := proxy.Judge(sets, proxy.Options{})
	n.mode, n.families = rep.Mode, len(rep.Families)
	return rep, nil
}

// inScratch loads rules into a network namespace and calls do in it.
func inScratch(t testing.TB, mode, text string, do func(*Machine) error) {
	t.Helper()
	hosttest.NeedRoot(t)
	for _, program := range []string{"nft", "iptables-nft-restore", "ip6tables-nft-restore"} {
		hosttest.NeedProgram(t, program)
	}
	space, err := netns.New(t.Context())
	require.NoError(t, err)
	defer space.Close()
	err = space.Do(t.Context(), func() error {
		load := [][]string{{"nft", "-f", "-"}}
		texts := []string{text}
		switch {
		case mode == "nftables" && strings.HasPrefix(text, "{"):
			load = [][]string{{"nft", "-j", "-f", "-"}}
		case mode == "iptables":
			load = [][]string{{"iptables-nft-restore"}, {"ip6tables-nft-restore"}}
			four, six, _ := strings.Cut(text, "# Generated by ip6tables")
			texts = []string{four, "# Generated by ip6tables" + six}
		}
		for i, argv := range load {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Stdin = strings.NewReader(texts[i])
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%q: %w\n%.2000s", argv, err, out)
			}
		}
		h, err := host.Open("/")
		if err != nil {
			return err
		}
		return do(NewMachine(h))
	})
	require.NoError(t, err)
}

// readRecording returns recorded rules in a loadable form.
func readRecording(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(recordings + name)
	require.NoError(t, err)
	if strings.HasSuffix(name, ".gz") {
		zr, err := gzip.NewReader(bytes.NewReader(raw))
		require.NoError(t, err)
		if raw, err = io.ReadAll(zr); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasSuffix(name, ".json") {
		var lines []string
		for line := range strings.Lines(string(raw)) {
			if !strings.Contains(line, "-m nfacct") { // not every kernel has it
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	var listing struct {
		NFTables []map[string]map[string]any `json:"nftables"`
	}
	require.NoError(t, json.Unmarshal(raw, &listing))
	var sorted []any
	for _, kind := range []string{"table", "chain", "set", "map", "rule"} {
		for _, object := range listing.NFTables {
			o := object[kind]
			if o == nil || o["table"] != ruleset.KubeProxyTable && o["name"] != ruleset.KubeProxyTable {
				continue
			}
			delete(o, "handle") // nft reads it as a position
			sorted = append(sorted, object)
		}
	}
	text, err := json.Marshal(map[string]any{"nftables": sorted})
	require.NoError(t, err)
	return string(text)
}
