package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/kube"
	"nodegate/policy"
)

// api: the API server of kubelet's kubeconfig answers, and accepts its credential.
func api() checks.Problem {
	return checks.Problem{
		Name: "kubelet.api", Stages: []checks.Stage{checks.Boot}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "The API server of kubelet's kubeconfig presents a certificate of another authority, or does not accept kubelet's credential.",
		Symptom: "kubelet runs and logs \"Unauthorized\" or \"x509: certificate signed by unknown authority\"; the Node never appears, or " +
			"stays NotReady.",
		How: "Reads the kubeconfig of --kubeconfig, or that of --bootstrap-kubeconfig while the former does not exist, and sends one " +
			"SelfSubjectReview over TLS, within 10 s. The result is unknown if no server answers: with the gate's default, kubelet then waits " +
			"for the API server. Skipped with insecure-skip-tls-verify: no credential is sent to a server that is not verified. Skipped in an " +
			"image, in a snapshot, before kubeadm join and without --kubeconfig. No policy of nodegate requests this check.",
		Remedy: "join the node again, or copy a valid kubeconfig to it",
		Ref:    "https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectAPI(ctx, h)
		},
	}
}

const apiTime = 10 * time.Second

func inspectAPI(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.Passing("an API server that accepts kubelet's credential")
	k, known, err := readConfigAndCommand(h, &s)
	if !known || k.Holder != "" { // which may not have opened its own way to the API server yet
		s.Skip = cmp.Or(s.Skip, "kubelet's connection to the API server depends on the program around it: "+k.Unknown)
		return s, err
	}
	if before, err := isBeforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	name := k.Flags["kubeconfig"].Value
	switch {
	case name == "":
		s.Skip = "kubelet has no --kubeconfig"
		return s, nil
	case h.Prove == nil:
		s.Skip = "only a running machine can query the API server"
		return s, nil
	}
	if bootstrap := k.Flags["bootstrap-kubeconfig"].Value; bootstrap != "" {
		exists, err := h.Files.Exists(name)
		if err != nil {
			return s, err
		}
		if !exists {
			name = bootstrap
		}
	}
	client, err := kube.FromKubeconfig(name, kube.NewPlugins(host.Credential))
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	user, err := client.Authenticate(ctx)
	var stranger *tls.CertificateVerificationError
	switch {
	case errors.Is(err, kube.ErrUnverified):
		s.Skip = name + " has insecure-skip-tls-verify: no credential is sent"
		return s, nil
	case errors.Is(err, kube.ErrRefused):
		s.Evidence = []checks.Evidence{checks.Seen(name, err.Error())}
		s.Differs("the API server does not accept the credential", "")
		return s, nil
	case errors.As(err, &stranger):
		s.Evidence = []checks.Evidence{checks.Seen(name, stranger.Error())}
		s.Differs("the server is not the one that "+name+" trusts", "correct the server or the certificate authority in "+name)
		return s, nil
	case err != nil:
		return s, err
	}
	if user != "" {
		s.Evidence = []checks.Evidence{checks.Seen(name, "accepted as "+user)}
	}
	return s, nil
}
