package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/proxyrules"
)

// Presence finds kube-proxy's process and its pages.
type Presence struct {
	Host    *host.Host
	Healthz string // where the caller says that it is; "": found
	Metrics string
}

// Look says what is wrong with the one who should write the rules: there is no process, or it does not run, or it does not
// answer. No finding: it answers, in whatever words.
func (p *Presence) Look(ctx context.Context) []proxyrules.Finding {
	out := proxyrules.NewCollector()
	processes, err := p.Host.Processes()
	if err != nil {
		out.Addf("kubeproxy.process.silent", "processes cannot be listed: %v", err)
		return out.List
	}
	proxy, found := findProxy(processes)
	if found && ended(proxy) {
		out.Addf("kubeproxy.process.stopped", "process %d (%s) is in state %s", proxy.PID, command(proxy), stateWord(proxy.State))
		return out.List
	}
	_, _, state := Page(ctx, cmp.Or(p.Healthz, defaultHealthz))
	switch {
	case state == nil:
	case found && !runs(proxy):
		out.Addf("kubeproxy.process.stopped", "process %d (%s) is in state %s, and gives no answer: %v", proxy.PID, command(proxy),
			stateWord(proxy.State), state)
	case !found && !p.Host.SeesAllProcesses():
		out.Addf("kubeproxy.process.silent", "there is no answer of kube-proxy (%v), and its process is not among those that can be "+
			"seen from here, which are not all (another PID namespace): run audit with the host's", state)
	case !found:
		out.Addf("kubeproxy.process.absent", "no process of this node is kube-proxy, k3s or kubelite, and there is no answer (%v): what changes "+
			"in the cluster does not come to this node's rules", state)
	default:
		p.elsewhere(ctx, proxy, state, out)
	}
	return out.List
}

// Writer returns the process with which kube-proxy writes rules at this moment, or reads them before it writes, and for how long it has
// run; false for none.
func (p *Presence) Writer() (writer host.Process, runs time.Duration, found bool) {
	processes, err := p.Host.Processes()
	if err != nil {
		return host.Process{}, 0, false
	}
	proxy, found := findProxy(processes)
	for _, c := range processes {
		name := command(c)
		writes := name == "nft" || strings.HasSuffix(name, "tables-restore") || strings.HasSuffix(name, "tables-save")
		if found && c.Parent == proxy.PID && writes {
			up, err := p.Host.Uptime()
			return c, up - c.Started, err == nil
		}
	}
	return host.Process{}, 0, false
}

// Began returns when kube-proxy's process began, the zero time where that is not known.
func (p *Presence) Began() time.Time {
	processes, err := p.Host.Processes()
	proxy, found := findProxy(processes)
	up, unknown := p.Host.Uptime()
	if err != nil || unknown != nil || !found || proxy.Started == 0 {
		return time.Time{}
	}
	return time.Now().Add(proxy.Started - up)
}

// Figures returns what kube-proxy says of its writings, nothing where it does not answer. It reports whether it is too slow to answer: its
// process is there, and neither stopped nor dead.
func (p *Presence) Figures(ctx context.Context) (m Metrics, slow bool) {
	page, _, err := Page(ctx, cmp.Or(p.Metrics, defaultMetrics))
	if err == nil {
		m, _ = ParseMetrics(bytes.NewReader(page))
		if bytes.Contains(page, []byte("\nkubeproxy_")) && !bytes.Contains(page, []byte("\nkubeproxy_sync_proxy_rules_last_")) {
			m.Families = map[string]SyncMetrics{"": {}} // from 1.33 on, there are no figures before the first writing
		}
		return m, false
	}
	if !timedOut(err) {
		return m, false
	}
	processes, err := p.Host.Processes()
	proxy, found := findProxy(processes)
	return m, err == nil && found && !ended(proxy)
}

// elsewhere looks for the pages of a process that does not answer where it usually does.
func (p *Presence) elsewhere(ctx context.Context, proxy host.Process, refused error, out *proxyrules.Collector) {
	if timedOut(refused) {
		out.Addf("kubeproxy.process.hung", "process %d (%s), in state %s, gives no answer: %v", proxy.PID, command(proxy),
			stateWord(proxy.State), refused)
		return
	}
	listens, err := p.Host.Listening(proxy.PID)
	if err != nil {
		out.Addf("kubeproxy.process.silent", "process %d (%s) runs, and does not answer: %v; %v", proxy.PID, command(proxy), refused, err)
		return
	}
	var tried []string
	answers := false
	for _, a := range listens {
		tried = append(tried, a.String())
		base := "http://" + reachable(a)
		if isHealthz(ctx, base+"/healthz") {
			p.Healthz, answers = base+"/healthz", true
		}
		if body, status, err := Page(ctx, base+"/metrics"); err == nil && status == http.StatusOK &&
			strings.Contains(string(body), "kubeproxy_") {
			p.Metrics, answers = base+"/metrics", true
		}
	}
	if !answers {
		out.Addf("kubeproxy.process.silent", "process %d (%s) runs, and does not answer: %v; it listens on %s", proxy.PID, command(proxy),
			refused, cmp.Or(strings.Join(tried, ", "), "nothing"))
	}
}

// Ports returns the TCP ports that kube-proxy listens on, nil where it is not there, which Look says. Whose sockets they are may be
// hidden from us; then it returns those that anybody listens on: where nobody does, kube-proxy does not.
func (p *Presence) Ports() (map[uint16]bool, error) {
	processes, err := p.Host.Processes()
	if err != nil {
		return nil, err
	}
	proxy, found := findProxy(processes)
	if !found && p.Host.SeesAllProcesses() {
		return nil, nil
	}
	var listens []netip.AddrPort
	if found {
		listens, err = p.Host.Listening(proxy.PID)
	}
	if !found || err != nil {
		if listens, err = p.Host.ListeningHere(); err != nil {
			return nil, err
		}
	}
	ports := map[uint16]bool{}
	for _, a := range listens {
		ports[a.Port()] = true
	}
	return ports, nil
}

// NoExternalIPs reports whether kube-proxy is configured to serve no externalIPs.
func (p *Presence) NoExternalIPs() bool {
	return slices.ContainsFunc(configurations(p.Host), func(c config.KubeProxy) bool { return c.NoExternalIPs })
}

// NodePortAddresses reports whether kube-proxy is configured to answer node ports at some addresses only.
func (p *Presence) NodePortAddresses() bool {
	return slices.ContainsFunc(configurations(p.Host), func(c config.KubeProxy) bool { return c.NodePortAddresses })
}

// ExcludeCIDRs returns the ranges in which kube-proxy leaves virtual servers alone: they are somebody else's.
func (p *Presence) ExcludeCIDRs() []netip.Prefix {
	var all []netip.Prefix
	for _, c := range configurations(p.Host) {
		all = append(all, c.ExcludeCIDRs...)
	}
	return all
}

// configurations returns what is on the node of kube-proxy's configuration, and what its process has: the file that this names, as it
// sees it itself, else its flags, or what k3s has for the one that it has built in. What cannot be read is left out.
func configurations(h *host.Host) []config.KubeProxy {
	c, _ := config.ReadKubeProxy(h.Files)
	all := []config.KubeProxy{c}
	processes, err := h.Processes()
	proxy, found := findProxy(processes)
	if err != nil || !found {
		return all
	}
	if name := command(proxy); name == "k3s" || strings.HasPrefix(name, "k3s-") {
		return append(all, config.K3sKubeProxy(h.Files, proxy.Args)...)
	}
	text := strings.Join(proxy.Args, " ")
	if m := regexp.MustCompile(`--config[= ](/\S+)`).FindStringSubmatch(text); m != nil {
		if file, err := h.Files.ReadFile(fmt.Sprintf("/proc/%d/root%s", proxy.PID, m[1])); err == nil {
			text = string(file)
		}
	}
	c, _ = config.ParseKubeProxy(text)
	return append(all, c)
}

// isHealthz reports whether a page is kube-proxy's healthz.
func isHealthz(ctx context.Context, address string) bool {
	body, status, err := Page(ctx, address)
	if err != nil {
		return false
	}
	h, err := ParseHealth(body, status)
	return err == nil && !h.CurrentTime.IsZero()
}

// reachable returns an address to dial for one that is listened on.
func reachable(a netip.AddrPort) string {
	if a.Addr().IsUnspecified() {
		if a.Addr().Is4() {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port()).String()
		}
		return net.JoinHostPort("localhost", fmt.Sprint(a.Port()))
	}
	return a.String()
}

func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() && !errors.Is(err, syscall.ECONNREFUSED)
}

// findProxy returns the process that is kube-proxy, or has it built in. One that runs comes before one that does not.
func findProxy(list []host.Process) (best host.Process, found bool) {
	for _, p := range list {
		if isProxy(p) && (!found || runs(p) && !runs(best)) {
			best, found = p, true
		}
	}
	return best, found
}

// isProxy knows kube-proxy by its name; hyperkube by its first argument; k3s and MicroK8s, which have it built in.
func isProxy(p host.Process) bool {
	name := p.Name
	if len(p.Args) > 0 {
		name = path.Base(p.Args[0])
	}
	switch {
	case name == "kube-proxy", name == "kubelite", name == "k3s", strings.HasPrefix(name, "k3s-"), p.Name == "kube-proxy":
		return true
	case name == "hyperkube" && len(p.Args) > 1:
		return p.Args[1] == "kube-proxy" || p.Args[1] == "proxy"
	}
	return false
}

// runs reports whether a process can do anything: it is not stopped, dead, or waiting for the kernel.
func runs(p host.Process) bool { return !ended(p) && p.State != 'D' }

// ended reports whether a process does nothing until somebody else does something.
func ended(p host.Process) bool { return strings.ContainsRune("TtZXx", rune(p.State)) }

func stateWord(s byte) string {
	word := map[byte]string{'R': "running", 'S': "sleeping", 'D': "waiting for the kernel", 'T': "stopped", 't': "stopped by a debugger",
		'Z': "dead, its parent has not noticed"}[s]
	return strings.TrimSuffix(fmt.Sprintf("%c (%s)", s, word), " ()")
}

func command(p host.Process) string {
	if len(p.Args) > 0 {
		return path.Base(p.Args[0])
	}
	return p.Name
}

// Silent reports whether it is known that kube-proxy does not answer.
func Silent(findings []proxyrules.Finding) bool {
	return slices.ContainsFunc(findings, func(f proxyrules.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.process.") })
}

// UsualSettle is how long the rules of a healthy kube-proxy may differ from the API.
const UsualSettle = 15 * time.Second

// SettleTime returns how long rules may differ from the API: so long, or longer where kube-proxy is configured to write its rules
// less often.
func SettleTime(h *host.Host, usual time.Duration) time.Duration {
	const beside = 10 * time.Second
	for _, c := range configurations(h) {
		usual = max(usual, c.MinSync+beside)
	}
	return usual
}
