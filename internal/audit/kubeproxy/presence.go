package kubeproxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

// Presence finds kube-proxy's process and its pages.
type Presence struct {
	Host    *host.Host
	Healthz string // the address that the caller gives; "": to be found
	Metrics string
	Get     Get // nil means Page
	// Answered returns since when the API server has answered this program: now if it does not. Nil means always.
	Answered func() time.Time
	Clock    func() time.Duration // host.ClockOffset; nil: the clock is never set

	process  host.Process    // kube-proxy's, as Look has found it; its PID is 0 without one
	health   []proxy.Finding // about the page that Look has read
	requests requestsSeen
	offset   time.Duration // of Clock, at the last call of ClockSet
	set      time.Time
}

// Counts returns the time from which on kube-proxy's failed requests count; zero: all do.
func (p *Presence) Counts() time.Time {
	if p.Answered == nil {
		return time.Time{}
	}
	return p.Answered()
}

// ClockSet returns when the clock was last set, as far as the calls of ClockSet have seen it, in the present clock. Other programs'
// earlier times of day cannot be compared with the clock.
func (p *Presence) ClockSet() time.Time {
	if p.Clock == nil {
		return time.Time{}
	}
	now := p.Clock()
	if p.offset != 0 && (now-p.offset).Abs() > time.Second {
		p.set = time.Now()
	}
	p.offset = now
	return p.set
}

// Look returns the problem with kube-proxy's process: it is missing, it does not run, or it does
// not respond. No finding means that it responds, whatever the response is.
func (p *Presence) Look(ctx context.Context) []proxy.Finding {
	out := proxy.NewCollector()
	p.health, p.process = nil, host.Process{}
	process, found, err := findProxy(p.Host)
	if err != nil {
		out.Addf("kubeproxy.process.silent", "could not list processes: %v", err)
		return out.List
	}
	p.process = process
	if found && isInactive(process) {
		out.Addf("kubeproxy.process.stopped", "process %d (%s) is in state %s", process.PID, command(process), stateWord(process.State))
		return out.List
	}
	page, status, state := p.Get.read(ctx, cmp.Or(p.Healthz, defaultHealthz))
	if h, err := ParseHealth(page, status); state == nil && err == nil {
		p.health = JudgeHealth(h)
	}
	switch {
	case state == nil:
	case found && !isRunnable(process):
		out.Addf("kubeproxy.process.stopped", "process %d (%s) is in state %s and does not respond: %v", process.PID, command(process),
			stateWord(process.State), state)
	case !found && !p.Host.SeesAllProcesses():
		out.Addf("kubeproxy.process.silent", "kube-proxy does not respond (%v), and its process is not among those visible from here; "+
			"another PID namespace hides some: run audit in the host's PID namespace", state)
	case !found:
		out.Addf("kubeproxy.process.absent", "no process of this node is kube-proxy, k3s or kubelite, and kube-proxy's address does not "+
			"respond (%v): changes in the cluster do not reach this node's rules", state)
	default:
		p.findPages(ctx, process, state, out)
	}
	return out.List
}

// Page returns the address and port of the page that Look queries.
func (p *Presence) Page() string {
	_, at, _ := strings.Cut(cmp.Or(p.Healthz, defaultHealthz), "://")
	at, _, _ = strings.Cut(at, "/")
	return strings.Replace(at, "localhost:", "127.0.0.1:", 1)
}

// Writer returns the process with which kube-proxy is currently writing rules, or reading them
// before it writes, and how long it has run. It returns false if no such process runs.
func (p *Presence) Writer() (writer host.Process, runs time.Duration, found bool) {
	processes, _ := p.Host.Processes()
	process, found, _ := findProxy(p.Host)
	for _, c := range processes {
		name := command(c)
		writes := name == "nft" || strings.HasSuffix(name, "tables-restore") || strings.HasSuffix(name, "tables-save")
		if found && c.Parent == process.PID && writes {
			up, err := p.Host.Uptime()
			return c, up - c.Started, err == nil
		}
	}
	return host.Process{}, 0, false
}

// Began returns when kube-proxy's process started, or the zero time if that is unknown.
func (p *Presence) Began() time.Time {
	process, found, err := findProxy(p.Host)
	up, also := p.Host.Uptime()
	if err != nil || also != nil || !found || process.Started == 0 {
		return time.Time{}
	}
	return time.Now().Add(process.Started - up)
}

// Figures returns kube-proxy's metrics about its syncs, empty if it does not respond. slow reports
// whether it is too slow to respond: its process exists and is neither stopped nor dead.
func (p *Presence) Figures(ctx context.Context) (m Metrics, slow bool) {
	page, _, err := p.Get.read(ctx, cmp.Or(p.Metrics, defaultMetrics))
	if err == nil {
		m, _ = ParseMetrics(bytes.NewReader(page))
		return m, false
	}
	if !timedOut(err) {
		return m, false
	}
	process, found, err := findProxy(p.Host)
	return m, err == nil && found && !isInactive(process)
}

// LastSync returns when kube-proxy's metrics show that it last wrote rules, or the zero time if its process does not run or
// has not written any.
func (p *Presence) LastSync(ctx context.Context) (last time.Time) {
	process, found, err := findProxy(p.Host)
	if err != nil || !found && p.Host.SeesAllProcesses() || found && isInactive(process) {
		return time.Time{}
	}
	figures, _ := p.Figures(ctx)
	for _, f := range figures.Families {
		if f.LastSync.After(last) {
			last = f.LastSync
		}
	}
	return last
}

// findPages searches the addresses on which a process listens for its pages, if the usual address does not respond.
func (p *Presence) findPages(ctx context.Context, process host.Process, refused error, out *proxy.Collector) {
	if timedOut(refused) {
		out.Addf("kubeproxy.process.hung", "process %d (%s), in state %s, does not respond: %v", process.PID, command(process),
			stateWord(process.State), refused)
		return
	}
	listens, err := p.Host.Listening(process.PID)
	if err != nil {
		out.Addf("kubeproxy.process.silent", "process %d (%s) runs but does not respond: %v; %v", process.PID, command(process), refused, err)
		return
	}
	var tried []string
	answers := false
	for _, a := range listens {
		tried = append(tried, a.String())
		base := "http://" + reachable(a.AddrPort)
		if p.isHealthz(ctx, base+"/healthz") {
			p.Healthz, answers = base+"/healthz", true
		}
		if body, status, err := p.Get.read(ctx, base+"/metrics"); err == nil && status == http.StatusOK &&
			strings.Contains(string(body), "kubeproxy_") {
			p.Metrics, answers = base+"/metrics", true
		}
	}
	if !answers {
		out.Addf("kubeproxy.process.silent", "process %d (%s) runs but does not respond: %v; it listens on %s", process.PID, command(process),
			refused, cmp.Or(strings.Join(tried, ", "), "no port"))
	}
}

// Settings returns kube-proxy's configuration: that on the node, and that of its process, which is the file that its command line names (as
// the process sees it), else its flags, or the k3s configuration of its built-in kube-proxy. Unreadable files are left out; the error is
// about the process's own file if no other was found and the right to read it is missing.
func (p *Presence) Settings() (c config.KubeProxy, err error) {
	h := p.Host
	c, _ = config.ReadKubeProxy(h.Files)
	add := func(one config.KubeProxy) {
		c.MinSync = max(c.MinSync, one.MinSync)
		c.NoExternalIPs, c.NodePortAddresses = c.NoExternalIPs || one.NoExternalIPs, c.NodePortAddresses || one.NodePortAddresses
		c.ExcludeCIDRs = append(c.ExcludeCIDRs, one.ExcludeCIDRs...)
	}
	process, found, notListed := findProxy(h)
	if notListed != nil || !found {
		return c, nil
	}
	if name := command(process); name == "k3s" || strings.HasPrefix(name, "k3s-") {
		for _, one := range config.K3sKubeProxy(h.Files, process.Args) {
			add(one)
		}
		return c, nil
	}
	text := strings.Join(process.Args, " ")
	if m := regexp.MustCompile(`--config[= ](/\S+)`).FindStringSubmatch(text); m != nil {
		root := fmt.Sprintf("/proc/%d/root", process.PID)
		if unit, _ := h.ServiceOf(process.PID); unit != "" {
			root = "" // it runs outside of containers, and no right is needed
		}
		file, denied := h.Files.ReadFile(root + m[1])
		switch {
		case denied == nil:
			text = string(file)
		case errors.Is(denied, fs.ErrPermission) && c.From == "":
			err = fmt.Errorf("kube-proxy's configuration is not known: %w; run the audit as root, outside of nodegate's units", denied)
		}
	}
	one, _ := config.ParseKubeProxy(text)
	add(one)
	return c, err
}

// isHealthz reports whether a page is kube-proxy's healthz.
func (p *Presence) isHealthz(ctx context.Context, address string) bool {
	body, status, err := p.Get.read(ctx, address)
	if err != nil {
		return false
	}
	_, err = ParseHealth(body, status)
	return err == nil
}

// reachable returns an address to connect to, for an address that a process listens on.
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

// findProxy returns the process that is kube-proxy or contains it. A running process takes precedence over one that does not run.
func findProxy(h *host.Host) (best host.Process, found bool, err error) {
	list, err := h.Processes()
	for _, p := range list {
		if isProxy(p) && (!found || isRunnable(p) && !isRunnable(best)) {
			best, found = p, true
		}
	}
	return best, found, err
}

// isProxy recognises kube-proxy by its name, and k3s and MicroK8s, which contain it.
func isProxy(p host.Process) bool {
	name := p.Name
	if len(p.Args) > 0 {
		name = path.Base(p.Args[0])
	}
	return name == "kube-proxy" || name == "kubelite" || name == "k3s" || strings.HasPrefix(name, "k3s-") || p.Name == "kube-proxy"
}

// isRunnable reports whether a process can run: it is not stopped, dead, or blocked in the kernel.
func isRunnable(p host.Process) bool { return !isInactive(p) && p.State != 'D' }

// isInactive reports whether a process is stopped or dead, and so cannot continue by itself.
func isInactive(p host.Process) bool { return strings.ContainsRune("TtZXx", rune(p.State)) }

func stateWord(s byte) string {
	word := map[byte]string{'R': "running", 'S': "sleeping", 'D': "waiting for the kernel", 'T': "stopped", 't': "stopped by a debugger",
		'Z': "dead, its parent has not reaped it"}[s]
	return strings.TrimSuffix(fmt.Sprintf("%c (%s)", s, word), " ()")
}

func command(p host.Process) string {
	if len(p.Args) > 0 {
		return path.Base(p.Args[0])
	}
	return p.Name
}

// Silent reports whether kube-proxy is known not to respond.
func Silent(findings []proxy.Finding) bool {
	return slices.ContainsFunc(findings, func(f proxy.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.process.") })
}

// UsualSettle is the time for which the rules of a healthy kube-proxy may differ from the API.
const UsualSettle = 15 * time.Second

// SettleTime returns how long rules may differ from the API: usual, or longer if kube-proxy is configured to write its rules less often.
func SettleTime(h *host.Host, usual time.Duration) time.Duration {
	const beside = 10 * time.Second
	c, _ := (&Presence{Host: h}).Settings()
	return max(usual, c.MinSync+beside)
}
