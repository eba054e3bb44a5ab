package kubelet

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"syscall"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// runtime: kubelet exits where its container runtime does not speak CRI v1.
func runtime() checks.Problem {
	return checks.Problem{
		Name: "kubelet.runtime", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "The container runtime of kubelet's configuration does not answer CRI v1: it is too old, its CRI plugin is disabled, " +
			"or it is not up yet.",
		Symptom: "kubelet restarts for ever: \"validate CRI v1 runtime API for endpoint ...: rpc error: code = Unimplemented\", or \"no " +
			"such file or " +
			"directory\" of the socket; the Node never appears.",
		How: "CRI's Version is called on the Unix socket of containerRuntimeEndpoint, or of containerd, kubelet's default, where its " +
			"configuration names none: runtime.v1, then runtime.v1alpha2, which kubelet stopped using in 1.26. Without a configuration " +
			"of kubelet nothing is asked, nor of one before 1.24 that uses Docker; that containerd's socket is missing says nothing where " +
			"kubelet's command line or version cannot be known, and before kubeadm join.",
		Remedy:   "install containerd 1.6 or CRI-O 1.20 or later, and let its CRI plugin run",
		TradeOff: "A newer containerd may need its configuration converted: containerd config migrate.",
		Ref:      "https://kubernetes.io/blog/2022/11/18/upcoming-changes-in-kubernetes-1-26/",
		Inspect:  inspectRuntime,
	}
}

const containerdSocket = "/run/containerd/containerd.sock"

func inspectRuntime(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("CRI v1")
	k, found, err := read(h, &s)
	if !found || h.Runtimes == nil {
		s.Skip = cmp.Or(s.Skip, "no runtime can be asked here")
		return s, err
	}
	socket := containerdSocket
	setting := k.Values["containerRuntimeEndpoint"]
	if setting.Value != "" {
		socket = socketOf(setting.Value)
		s.Evidence = []checks.Evidence{checks.Seen(setting.From.Source, setting.From.Text)}
	}
	s, err = judgeRuntime(ctx, h, s, socket)
	if err != nil || s.Pass || setting.Value != "" {
		return s, err
	}
	minor, err := h.KubeletMinor(ctx)
	switch {
	case err != nil:
		return s, err
	case minor > 0 && minor < 24:
		return checks.State{Skip: "kubelet before 1.24 uses Docker where its configuration names no runtime"}, nil
	}
	exists, err := h.Files.Exists(socket)
	if err != nil || exists {
		return s, err
	}
	before, err := beforeJoin(h, k)
	switch {
	case err != nil:
		return s, err
	case before: // kubeadm join may name another runtime
		return checks.State{Skip: notJoined}, nil
	case minor == 0, k.Command == nil:
		return checks.State{Skip: "kubelet's configuration names no runtime, and there is no " + socket}, nil
	}
	return s, nil
}

// socketOf returns the Unix socket of an endpoint as kubelet reads it (parseEndpoint of k8s.io/cri-client): of a URL or, still, of a path
// alone.
func socketOf(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Scheme == "unix" {
		return u.Path
	}
	return endpoint
}

func judgeRuntime(ctx context.Context, h *host.Host, s checks.State, socket string) (checks.State, error) {
	said, err := h.Runtimes.CRIVersion(ctx, socket, "v1")
	switch {
	case err == nil:
		s.Got = "CRI v1, " + said
		s.Evidence = append(s.Evidence, checks.Seen(socket, said))
		return s, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		s.Evidence = append(s.Evidence, checks.Seen(socket, err.Error()))
		s.Differs("nobody answers at "+socket,
			"start the container runtime, and see why it did not: systemctl status containerd crio; or correct containerRuntimeEndpoint")
		return s, nil
	case !errors.Is(err, errors.ErrUnsupported):
		return s, err
	}
	old, err := h.Runtimes.CRIVersion(ctx, socket, "v1alpha2")
	switch {
	case err == nil:
		s.Evidence = append(s.Evidence, checks.Seen(socket, old+", CRI v1alpha2 only"))
		if minor, _ := h.KubeletMinor(ctx); minor > 0 && minor < 26 {
			s.Got = "CRI v1alpha2, which kubelet before 1.26 uses"
			return s, nil
		}
		s.Differs("CRI v1alpha2 only: "+old, "install containerd 1.6 or CRI-O 1.20 or later")
	case errors.Is(err, errors.ErrUnsupported):
		s.Evidence = append(s.Evidence, checks.Seen(socket, "neither runtime.v1 nor runtime.v1alpha2"))
		s.Differs("the runtime has no CRI", "take \"cri\" out of disabled_plugins in /etc/containerd/config.toml, then run: "+
			"systemctl restart containerd; `containerd config dump` shows why a plugin does not run")
	default:
		return s, err
	}
	return s, nil
}
