package datapath

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/netns"
)

// SandboxOptions configures Sandbox.
type SandboxOptions struct {
	Socket  string        // of the container runtime; "" means the one that kubelet uses
	Timeout time.Duration // bounds the probe without its clean-up; 0 means 10 s
}

// SandboxResult is the result of a sandbox probe.
type SandboxResult struct {
	Pass        bool     `json:"pass"`                // a Pod sandbox started, and answered if it has an address
	Failed      string   `json:"failed,omitempty"`    // the step that failed: image, start, packet or remove
	Skipped     string   `json:"skipped,omitempty"`   // why the node can be neither proven nor accused
	Summary     string   `json:"summary"`             // the result in one sentence
	Words       string   `json:"words,omitempty"`     // the runtime's error, with ID in place of each identifier
	Remedy      string   `json:"remedy,omitempty"`    // what to do about a failure
	Socket      string   `json:"socket"`              // of the container runtime
	Runtime     string   `json:"runtime,omitempty"`   // its name and version
	Image       string   `json:"image,omitempty"`     // the image of the sandbox, if the runtime reports it
	Network     string   `json:"network,omitempty"`   // the CNI configuration that the runtime uses, with its plugins
	HostNetwork bool     `json:"hostNetwork"`         // the sandbox was on the host network
	Addresses   []string `json:"addresses,omitempty"` // of the sandbox
	Stale       string   `json:"stale,omitempty"`     // the replaced file of the program that the runtime still runs
	Removed     []string `json:"removed,omitempty"`   // the sandboxes of an earlier, killed probe
	Warnings    []string `json:"warnings,omitempty"`  // errors that do not affect the verdict
	Duration    Millis   `json:"durationMs"`          // of the whole probe
	minor       bool     // another program may mend the fault, and needs kubelet for that
}

// The values of SandboxResult.Failed.
const (
	FailedImage  = "image"
	FailedStart  = "start"
	FailedPacket = "packet"
	FailedRemove = "remove"
)

const (
	sandboxTime = 10 * time.Second
	cleanTime   = 5 * time.Second // of the removal, which continues after ctx has ended
)

// Sandbox starts a Pod sandbox through CRI as kubelet does, sends a packet to each of its addresses, waits for the reply, and removes the
// sandbox. Before there is a CNI configuration, the sandbox is on the host network. It pulls no image. It returns an error only if it
// could not determine the result.
//
// A CNI plugin may need its daemon, which runs only after kubelet has started, or a Pod of the API server. If such a plugin refuses the
// sandbox, the rest is proven on the host network, and the result is Skipped.
func Sandbox(ctx context.Context, h *host.Host, o SandboxOptions) (SandboxResult, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Timeout, sandboxTime))
	defer cancel()
	p := sandboxProbe{h: h, r: SandboxResult{Socket: o.Socket}}
	err := p.run(ctx)
	p.r.Duration = Millis(time.Since(start))
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF) { // CRI-O panics if its storage is read-only
		err = fmt.Errorf("the runtime has ended (`journalctl -u %s` shows why): %w", p.r.unit(), err)
	}
	if err != nil {
		return p.r, fmt.Errorf("probing a Pod sandbox: %w", err)
	}
	return p.r, nil
}

type sandboxProbe struct {
	h      *host.Host
	r      SandboxResult
	setup  host.RuntimeSetup
	parent string // of the sandbox's cgroup
	proc   string // the directory of the runtime's process in /proc
	later  string // the runtime's words about a missing plugin, or a broken file of a network, that the network's own Pod may bring
}

// errTaken is the error of a sandbox that another program has stopped: kubelet stops the Pods that the API server does not have.
var errTaken = errors.New("another program, probably kubelet, stopped the sandbox while it was tested: run the probe again")

func (p *sandboxProbe) run(ctx context.Context) error {
	if down, err := p.connect(ctx); down || err != nil {
		return err
	}
	lock, err := lockSandbox(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	var left []string
	p.r.Removed, left, err = host.RemoveSandboxes(ctx, p.r.Socket)
	switch {
	case left != nil && p.cannotRun(refusalOf(err)):
		p.refused(FailedStart, "no Pod can start", refusalOf(err))
		return nil
	case len(left) > 1, left != nil && ctx.Err() != nil: // another sandbox would stay as well
		p.refused(FailedRemove, "the sandboxes of earlier probes cannot be removed", refusalOf(err))
		return nil
	case left == nil && err != nil:
		return err
	}
	if lacks, err := p.lacksFile(ctx); lacks || err != nil {
		return err
	}
	onHost := !p.setup.NetworkReady || left != nil || p.later != ""
	err = p.try(ctx, onHost)
	if errors.Is(err, errTaken) {
		err = p.try(ctx, onHost)
	}
	if plugin := p.needsDaemon(); err == nil && plugin != "" {
		words := p.r.Words
		if err = p.try(ctx, true); err == nil && (p.r.Pass || p.r.Failed == FailedRemove) {
			p.skip("a sandbox starts on the host network; the CNI plugin "+plugin+
				" does not serve a Pod that the API server does not know, or its daemon is not up yet", words)
		}
	}
	if !p.setup.NetworkReady && p.setup.Ignored != nil && p.later == "" {
		p.later = p.setup.Ignored[0]
	}
	if err == nil && p.r.Pass && p.later != "" { // the network's own Pod may write the file
		p.refused(FailedStart, "no Pod can start, except on the host network", p.later)
		p.r.minor = true
	}
	return err
}

// refusalOf returns the runtime's words in an error, or the error.
func refusalOf(err error) string {
	words, _ := runtimeWords(err)
	return cmp.Or(words, err.Error())
}

// connect reads the runtime's report about itself. down is set if it does not serve CRI v1.
func (p *sandboxProbe) connect(ctx context.Context) (down bool, err error) {
	if p.r.Socket == "" {
		if p.r.Socket, err = p.h.RuntimeSocket(); err != nil {
			return false, err
		}
	}
	p.r.Runtime, err = p.h.Runtimes.CRIVersion(ctx, p.r.Socket, "v1")
	if err == nil {
		p.setup, err = p.h.Runtimes.RuntimeSetup(ctx, p.r.Socket)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, errors.ErrUnsupported):
		if number, is := errors.AsType[syscall.Errno](err); is {
			err = number // the message has the path already
		}
		p.skip("no runtime serves CRI v1 at "+p.r.Socket+": "+err.Error()+"; name another with --socket", "")
		return true, nil
	case err != nil:
		return false, err
	}
	p.r.Image, p.proc = p.setup.SandboxImage, "/proc/"+strconv.Itoa(host.RuntimeProcess(p.r.Socket))
	if program, err := p.h.Files.ReadLink(p.proc + "/exe"); err == nil && strings.HasSuffix(program, " (deleted)") {
		p.r.Stale = strings.TrimSuffix(program, " (deleted)")
	}
	for _, n := range p.setup.Networks {
		if n.Name != "cni-loopback" { // containerd's own
			p.r.Network = n.Name + " (" + strings.Join(n.Plugins, ", ") + ")"
		}
	}
	// Since 2.0, containerd reports the image no more. A file that only root may read does not show it either: then another
	// image that is pinned hides that it is missing.
	if config, err := p.h.Files.ReadFile(containerdConfig); err == nil && p.r.Image == "" && p.r.unit() == "containerd" {
		if m := regexp.MustCompile(`(?m)^\s*sandbox(?:_image)?\s*=\s*["']([^"']+[/:][^"']+)["']`).FindSubmatch(config); m != nil {
			p.r.Image = string(m[1])
		}
	}
	for _, file := range p.setup.Ignored {
		if p.setup.NetworkReady { // else it is the failure
			p.r.Warnings = append(p.r.Warnings, "the runtime ignores "+file+": correct the file, or remove it")
		}
	}
	driver, err := p.h.Runtimes.CgroupDriver(ctx, p.r.Socket)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return false, err
	}
	if driver.Driver == "systemd" { // which refuses a parent that is not a slice
		p.parent = "system.slice"
	}
	return false, nil
}

// lacksFile reports a file without which no sandbox can start: a CNI plugin, the default handler's program, the image. A
// runtime that starts a sandbox without a plugin cannot remove it either, and it would pull the image.
func (p *sandboxProbe) lacksFile(ctx context.Context) (lacks bool, err error) {
	isMissing := func(file string) bool { // as the runtime sees it; false if that is not known
		root, err := p.h.Files.Exists(p.proc + "/root/proc")
		exists, failed := p.h.Files.Exists(p.proc + "/root" + file)
		return root && !exists && errors.Join(err, failed) == nil
	}
	for _, plugin := range p.setup.Plugins() {
		dirs := p.setup.PluginDirs
		isFound := slices.ContainsFunc(dirs, func(dir string) bool { return !isMissing(path.Join(dir, plugin)) })
		if (p.setup.NetworkReady || p.foreignPlugin() == "") && len(dirs) > 0 && !isFound {
			words := fmt.Sprintf("failed to find plugin %q in path %v", plugin, dirs)
			if p.comesLater(plugin) {
				p.later = cmp.Or(p.later, words)
				continue
			}
			p.refused(FailedStart, "no Pod can start", words)
			return true, nil
		}
	}
	if p.r.Image == "" && p.r.unit() != "containerd" {
		p.skip("the runtime does not report the image of its sandboxes, which it may have to pull", "")
		return true, nil
	}
	handler := p.setup.Handlers[p.setup.Default]
	for _, program := range []string{handler.BinaryName, handler.Monitor} {
		if path.IsAbs(program) && isMissing(program) {
			p.refused(FailedStart, "no Pod can start", "fork/exec "+program+": no such file or directory")
			return true, nil
		}
	}
	has, err := host.HasImage(ctx, p.r.Socket, p.r.Image)
	if has || err != nil {
		return false, err
	}
	image := cmp.Or(p.r.Image, "of its sandboxes")
	p.fail(FailedImage, "the runtime does not have the image "+image+", and no Pod starts without it", p.r.pull())
	return true, nil
}

// lockSandbox waits until no other probe runs: it would remove this one's sandbox.
func lockSandbox(ctx context.Context) (io.Closer, error) {
	n, err := netns.Current(ctx)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	for {
		lock, err := n.Lock(ctx, "nodegate-sandbox")
		if !errors.Is(err, syscall.EADDRINUSE) {
			return lock, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("another sandbox probe is running: %w", ctx.Err())
		}
	}
}

// try starts a sandbox, tests it, and removes it.
func (p *sandboxProbe) try(ctx context.Context, hostNetwork bool) (err error) {
	p.r.HostNetwork, p.r.Pass, p.r.Failed, p.r.Words, p.r.Remedy, p.r.minor = hostNetwork, false, "", "", "", false
	defer func() {
		// The sandbox must go even if the probe has used up its time.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		_, left, e := host.RemoveSandboxes(late, p.r.Socket)
		switch {
		case e == nil:
		case left != nil && p.r.Pass:
			p.refused(FailedRemove, "a sandbox of the probe cannot be removed", refusalOf(e))
		default:
			p.r.Warnings = append(p.r.Warnings, "removing the sandbox: "+e.Error())
		}
	}()
	id, err := host.RunSandbox(ctx, p.r.Socket, p.parent, hostNetwork)
	switch words, said := runtimeWords(err); {
	case said:
		p.refused(FailedStart, "no Pod can start", words)
		p.spareBridge(ctx)
		return nil
	case errors.Is(err, errors.ErrUnsupported):
		p.skip("the runtime does not serve RunPodSandbox", "")
		return nil
	case err != nil && ctx.Err() != nil && p.foreignPlugin() != "" && !hostNetwork:
		p.skip("the CNI plugin "+p.foreignPlugin()+" did not return in time: its daemon may not be up yet", "")
		return nil
	case err != nil:
		return err
	}
	sandbox, err := host.GetSandbox(ctx, p.r.Socket, id)
	if _, said := runtimeWords(err); said || err == nil && !sandbox.Ready {
		return errTaken
	}
	if err != nil {
		return err
	}
	p.r.Addresses = sandbox.IPs
	return p.exchange(ctx, id)
}

// exchange sends a packet to each address of a running sandbox.
func (p *sandboxProbe) exchange(ctx context.Context, id string) error {
	where := "on the host network, because the runtime has no network yet"
	if !p.r.HostNetwork {
		where = "at " + strings.Join(p.r.Addresses, " and ")
	}
	for _, ip := range p.r.Addresses {
		err := ping(ctx, ip, pingTime)
		if err == nil {
			continue
		}
		if s, gone := host.GetSandbox(ctx, p.r.Socket, id); gone != nil || !s.Ready {
			return errTaken
		}
		if !errors.Is(err, errNoReply) {
			return fmt.Errorf("sending a packet to %s: %w", ip, err)
		}
		if plugin := p.foreignPlugin(); plugin != "" {
			p.skip("a sandbox starts at "+ip+"; it does not answer the node, and "+plugin+
				" may drop packets of a Pod that the API server does not know", "")
			return nil
		}
		p.fail(FailedPacket, "a sandbox starts at "+ip+" and does not answer the node", "run `ip route get "+ip+
			"`: the route must lead to the Pods' bridge; then look for a rule that drops the packet (`nft list ruleset`, `iptables-save`)")
		return nil
	}
	p.r.Pass, p.r.Summary = true, "a Pod sandbox started "+where
	if len(p.r.Addresses) > 0 {
		p.r.Summary += ", answered the node"
	}
	return nil
}

func (p *sandboxProbe) skip(why, words string) {
	p.r.Pass, p.r.Failed, p.r.Remedy = false, "", ""
	p.r.Skipped, p.r.Summary, p.r.Words = why, why, words
}

func (p *sandboxProbe) fail(step, summary, remedy string) {
	p.r.Pass, p.r.Failed, p.r.Summary, p.r.Remedy = false, step, summary, remedy
	p.r.minor = step == FailedImage || step == FailedRemove // the runtime may be able to pull it; the CNI, once its daemon is up
}

func (p *sandboxProbe) refused(step, summary, words string) {
	p.fail(step, summary+": "+words, p.remedy(words))
	if step == FailedRemove {
		p.r.Remedy = "kubelet or the next probe removes it; if it stays, " + p.r.Remedy
	}
	p.r.Words = words
}

// Proof returns the result as a requirement of a policy.
func (r SandboxResult) Proof() host.Proof {
	proof := host.Proof{Pass: r.Pass, Skip: r.Skipped, Minor: r.minor, Lost: r.Summary,
		Evidence: r.Socket + ": " + r.Summary, Remedy: r.Remedy}
	if r.Pass && r.Stale != "" {
		proof.Pass, proof.Minor = false, true
		proof.Lost = "the runtime runs a program whose file was replaced"
		proof.Evidence += "; " + r.staleText()
		proof.Remedy = r.restart()
	}
	return proof
}

func (r SandboxResult) staleText() string {
	return "it runs " + r.Stale + ", which has been replaced since it started"
}

// Render writes the result for people.
func (r SandboxResult) Render(w io.Writer) error {
	var b bytes.Buffer
	if r.Failed != "" {
		fmt.Fprintf(&b, "%s: ", r.Failed)
	}
	fmt.Fprintf(&b, "%s\n", r.Summary)
	fmt.Fprintf(&b, "  %s at %s, %s\n", cmp.Or(r.Runtime, "no runtime"), r.Socket, r.Duration)
	if r.Network != "" {
		fmt.Fprintf(&b, "  network %s\n", r.Network)
	}
	if r.Skipped != "" && r.Words != "" {
		fmt.Fprintf(&b, "  the runtime's words: %s\n", r.Words)
	}
	if len(r.Removed) > 0 {
		fmt.Fprintf(&b, "  removed the leftovers of a killed probe: %s\n", strings.Join(r.Removed, ", "))
	}
	if r.Stale != "" {
		fmt.Fprintf(&b, "  warning: %s: %s\n", r.staleText(), r.restart())
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", warning)
	}
	if r.Remedy != "" {
		fmt.Fprintf(&b, "  remedy: %s\n", r.Remedy)
	}
	_, err := w.Write(b.Bytes())
	return err
}
