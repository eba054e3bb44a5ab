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
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// runtime: kubelet exits if its container runtime does not serve CRI v1.
func runtime() checks.Problem {
	return checks.Problem{
		Name: "kubelet.runtime", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "The container runtime that kubelet uses does not answer CRI v1: it is too old, its CRI plugin is " +
			"disabled, or it has not started.",
		Symptom: "kubelet restarts forever: \"validate CRI v1 runtime API for endpoint ...: rpc error: code = " +
			"Unimplemented\", or \"no such file or directory\" for the socket; the Node never appears.",
		How: "Calls CRI's Version on the Unix socket of containerRuntimeEndpoint, by default containerd's: runtime.v1, then runtime.v1alpha2, " +
			"which kubelet dropped in 1.26; and the image service on the socket of imageServiceEndpoint, if that is another one. Skipped without " +
			"a kubelet configuration, and for a kubelet before 1.24 that uses Docker. If no endpoint is configured, a missing containerd socket " +
			"is not a failure while kubelet's command line or version is unknown, nor before kubeadm join.",
		Remedy:   "install containerd 1.6 or CRI-O 1.20 or later, and enable its CRI plugin",
		TradeOff: "A newer containerd may need its configuration converted: run `containerd config migrate`.",
		Ref:      "https://kubernetes.io/blog/2022/11/18/upcoming-changes-in-kubernetes-1-26/",
		Inspect:  inspectRuntime,
	}
}

func inspectRuntime(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("CRI v1")
	k, found, err := readConfig(h, &s)
	if !found || h.Runtimes == nil {
		s.Skip = cmp.Or(s.Skip, "no container runtime to query here")
		return s, err
	}
	socket := host.ContainerdSocket
	setting := k.Values["containerRuntimeEndpoint"]
	if setting.Value != "" {
		socket = host.SocketPath(setting.Value)
		s.Evidence = []checks.Evidence{checks.Seen(setting.From.Source, setting.From.Text)}
	}
	if scheme := otherScheme(setting.Value); scheme != "" {
		s.Differs("containerRuntimeEndpoint has the scheme "+scheme, "set containerRuntimeEndpoint to unix:///PATH: kubelet connects to Unix "+
			"sockets only")
		return s, nil
	}
	s, err = judgeRuntime(ctx, h, s, socket)
	if err == nil && s.Pass {
		return judgeImageService(ctx, h, s, k.Values["imageServiceEndpoint"], socket)
	}
	if err != nil || setting.Value != "" {
		return s, err
	}
	minor, err := h.KubeletMinor(ctx)
	switch {
	case err != nil:
		return s, err
	case minor > 0 && minor < 24:
		return checks.State{Skip: "without a configured runtime, kubelet before 1.24 uses Docker"}, nil
	}
	exists, err := h.Files.Exists(socket)
	if err != nil || exists {
		return s, err
	}
	before, err := isBeforeJoin(h, k)
	switch {
	case err != nil:
		return s, err
	case before: // kubeadm join may name another runtime
		return checks.State{Skip: notJoined}, nil
	case minor == 0, k.Command == nil:
		return checks.State{Skip: "kubelet's configuration names no runtime, and " + socket + " does not exist"}, nil
	}
	return s, nil
}

// otherScheme returns the scheme of an endpoint that is not a Unix socket, which kubelet refuses (GetAddressAndDialer of
// k8s.io/cri-client).
func otherScheme(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme == "unix" {
		return ""
	}
	return u.Scheme
}

// judgeImageService judges the image service if it has a socket of its own (PreInitRuntimeService in pkg/kubelet/kubelet.go).
func judgeImageService(
	ctx context.Context, h *host.Host, s checks.State, setting config.KubeletValue, runtime string,
) (checks.State, error) {
	socket := host.SocketPath(setting.Value)
	if socket == "" || socket == runtime {
		return s, nil
	}
	s.Evidence = append(s.Evidence, checks.Seen(setting.From.Source, setting.From.Text))
	if scheme := otherScheme(setting.Value); scheme != "" {
		s.Differs("imageServiceEndpoint has the scheme "+scheme, "set imageServiceEndpoint to unix:///PATH: kubelet connects to Unix "+
			"sockets only")
		return s, nil
	}
	_, err := h.Runtimes.CRIVersion(ctx, socket, host.ImageService)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		s.Evidence = append(s.Evidence, checks.Seen(socket, err.Error()))
		s.Differs("no image service at "+socket, "start the service that listens on "+socket+", or remove imageServiceEndpoint")
	case errors.Is(err, errors.ErrUnsupported):
		s.Evidence = append(s.Evidence, checks.Seen(socket, "no runtime.v1.ImageService"))
		s.Differs(socket+" does not serve CRI v1 images", "correct imageServiceEndpoint, or remove it")
	case err != nil:
		return s, err
	}
	return s, nil
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
		s.Differs("no answer at "+socket,
			"start the container runtime (`systemctl status containerd crio` shows why it is down), or correct containerRuntimeEndpoint")
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
		s.Differs("the runtime does not serve CRI", "run `ctr plugins ls -d id==cri`, which shows why containerd's CRI plugin is off: usually "+
			"\"cri\" is in disabled_plugins of /etc/containerd/config.toml, or registry mirrors are set beside config_path, of which one must "+
			"go; then run `systemctl restart containerd`")
	default:
		return s, err
	}
	return s, nil
}
