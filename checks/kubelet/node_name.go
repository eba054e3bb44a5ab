package kubelet

import (
	"context"
	"regexp"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// nodeName: nodes with one name overwrite each other, and the API server rejects an invalid name.
func nodeName() checks.Problem {
	return checks.Problem{
		Name: "kubelet.node-name", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true, AtBoot: true,
		Detects: "The name under which kubelet registers its Node is localhost, which other machines have too, is not a valid name, or " +
			"is not the name in kubelet's client certificate.",
		Symptom: "Nodes overwrite each other: kubectl get nodes shows one Node named localhost whose address changes. Or kubelet logs \"Unable " +
			"to register node with API server ... Invalid value\", or \"node A is not allowed to modify node B\", and the Node never appears.",
		How: "The name is --hostname-override, or else the machine's host name, in lower case. It must be a DNS subdomain (RFC 1123), and " +
			"not localhost or a name below localhost.localdomain. The certificate is the one of kubelet.certificate-dates; its " +
			"common name is system:node:NAME. Skipped if kubelet has no kubeconfig, does not register itself, or gets its " +
			"name from an in-tree cloud provider. Warns only, because a cluster of one machine works with such a name; set severity = \"block\" " +
			"to hold kubelet until cloud-init or DHCP has set the host name.",
		Remedy: "run `hostnamectl set-hostname NAME`, or set --hostname-override; find out why cloud-init or DHCP did not set it before " +
			"kubelet started",
		Ref: "https://kubernetes.io/docs/concepts/architecture/nodes/#node-name-uniqueness",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectNodeName(h)
		},
	}
}

func inspectNodeName(h *host.Host) (checks.State, error) {
	s := checks.Passing("a valid name that no other machine has by default")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	switch cloud := k.Flags["cloud-provider"].Value; {
	case k.Flags["kubeconfig"].Value == "":
		s.Skip = "kubelet has no --kubeconfig"
		return s, nil
	case k.Flags["register-node"].Value == "false" || k.Values["registerNode"].Value == "false":
		s.Skip = "kubelet does not register its Node"
		return s, nil
	case cloud != "" && cloud != "external":
		s.Skip = "the cloud provider " + cloud + " names the Node"
		return s, nil
	}
	flag := k.Flags["hostname-override"]
	name := flag.Value
	if name == "" {
		if name, err = h.Text("/proc/sys/kernel/hostname"); err != nil {
			return s, err
		}
		s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/kernel/hostname", strings.TrimSpace(name))}
	} else {
		s.Evidence = []checks.Evidence{checks.Seen(flag.From.Source, flag.From.Text)}
	}
	if hasSpecifier(name) || strings.Contains(name, "$") {
		s.Skip = "the name in --hostname-override is set by systemd or a shell"
		return s, nil
	}
	name = strings.ToLower(strings.TrimSpace(name)) // GetHostname in k8s.io/component-helpers/node/util
	const most = 253
	subdomain := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	switch first, below, _ := strings.Cut(name, "."); {
	case name == "":
		s.Differs("empty", "")
	case first == "localhost" && (below == "" || strings.HasPrefix(below, "localdomain")):
		s.Differs("the name is "+name, "")
	case len(name) > most || !subdomain.MatchString(name):
		s.Differs("the name "+name+" is not a DNS subdomain", "")
	default:
		if k.Values["rotateCertificates"].Value != "true" {
			return s, nil
		}
		c, err := readChain(h, rotatedFile(k))
		if of, is := strings.CutPrefix(c.name, "system:node:"); err == nil && is && of != name {
			s.Evidence = append(s.Evidence, checks.Seen(c.from, "common name "+c.name))
			s.Differs("the name "+name+", and a certificate for "+of, "restore the host name "+of+", or remove "+c.from+
				" and let kubelet ask for a certificate again (`kubeadm join`)")
		}
	}
	return s, nil
}
