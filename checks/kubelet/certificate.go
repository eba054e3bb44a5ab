package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// certificate: kubelet exits where its client certificate is over and what should give it a new one is missing.
func certificate() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's client certificate is missing or expired, and the bootstrap kubeconfig that would get it a new one is not there; " +
			"or the file of the rotated one is damaged, as a power cut leaves it.",
		Symptom: "kubelet exits: \"part of the existing bootstrap client certificate ... is expired\"; the node, often one that was off " +
			"for long, never becomes Ready again.",
		How: "The kubeconfig of kubelet's --kubeconfig is read, and the certificates that its user names or holds; the first end of them is " +
			"compared with the clock. Where --bootstrap-kubeconfig names a file that exists, kubelet renews by itself; where it is not given, " +
			"kubelet starts with an expired certificate, see kubelet.certificate-dates, or without one. With rotateCertificates, " +
			"kubelet-client-current.pem of --cert-dir is read, too: where it is there, it must have a certificate and its key.",
		Remedy:   certificateRemedy,
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now(), true)
		},
	}
}

// certificateDates: kubelet runs, and the API server does not know it.
func certificateDates() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate-dates", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "kubelet's client certificate is expired, or not yet valid by this machine's clock.",
		Symptom: "kubelet runs, and logs \"Unauthorized\" or \"x509: certificate has expired or is not yet valid\"; the node is NotReady.",
		How: "As kubelet.certificate, with both dates. With rotateCertificates kubelet uses kubelet-client-current.pem of --cert-dir " +
			"until it is over, whatever the kubeconfig holds.",
		Remedy:   certificateRemedy,
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now(), false)
		},
	}
}

const certificateRemedy = "on a control plane, run: kubeadm kubeconfig user --org system:nodes --client-name system:node:NODE; or join " +
	"the node again"

// inspectCertificate compares the certificate's dates with now; with exits, only those that make kubelet exit.
func inspectCertificate(h *host.Host, now time.Time, exits bool) (checks.State, error) {
	s := checks.Passing("a client certificate that is valid now")
	k, found, err := read(h, &s)
	if !found {
		return s, err
	}
	if before, err := beforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	kubeconfig := k.Flags["kubeconfig"].Value
	if kubeconfig == "" {
		s.Skip = "kubelet is given no kubeconfig"
		return s, nil
	}
	rotated, broken, err := rotatedCertificate(h, k)
	if err != nil {
		return s, err
	}
	if broken != nil {
		if !exits {
			s.Skip = rotated.from + " is damaged, see kubelet.certificate"
			return s, nil
		}
		s.Evidence = []checks.Evidence{checks.Seen(rotated.from, broken.Error())}
		s.Differs("no certificate with its key in "+rotated.from, "remove "+rotated.from+", and join the node again where its kubeconfig "+
			"names that file")
		return s, nil
	}
	bootstrap := k.Flags["bootstrap-kubeconfig"].Value
	if bootstrap != "" {
		if exists, err := h.Files.Exists(bootstrap); err != nil || exists {
			s.Skip = "kubelet gets its certificate by " + bootstrap
			return s, err
		}
	}
	c, err := clientCertificate(h, kubeconfig)
	if !exits && rotated.found() && now.Before(rotated.until) { // getCurrentCertificateOrBootstrap: after that, it is the kubeconfig's again
		c, err = rotated, nil
	}
	var unusable unusableError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &unusable) && bootstrap != "":
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, err.Error())}
		if !exits {
			s.Skip = "there is no certificate, see kubelet.certificate"
			return s, nil
		}
		s.Differs("missing, and no bootstrap kubeconfig", "join the node again, or give kubelet a bootstrap kubeconfig")
		return s, nil
	case err != nil:
		return s, err
	case !c.found() && bootstrap != "" && exits: // where it is given a way to get one, kubelet wants one (isClientConfigStillValid)
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, "no user with a certificate"), checks.Seen(bootstrap, "missing")}
		s.Differs("none in "+kubeconfig+", and no bootstrap kubeconfig", "join the node again, or give kubelet a bootstrap kubeconfig, or take "+
			"--bootstrap-kubeconfig out of its arguments")
		return s, nil
	case !c.found():
		s.Skip = kubeconfig + " uses no certificate"
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(c.from, fmt.Sprintf("%s, valid from %s to %s", c.name, c.since.UTC().Format(time.RFC3339),
		c.until.UTC().Format(time.RFC3339)))}
	switch {
	case exits && (bootstrap == "" || now.Before(c.until)):
		s.Got = "a client certificate with which kubelet starts"
	case now.After(c.until):
		s.Differs("expired since "+c.until.UTC().Format(time.RFC3339), "")
	case now.Before(c.since):
		s.Differs("valid only from "+c.since.UTC().Format(time.RFC3339),
			"set the clock, which reads "+now.UTC().Format(time.RFC3339)+": timedatectl; and see why it is not synchronised")
	}
	return s, nil
}
