package watch

import (
	"cmp"
	"os"
	"strings"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/kube"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// maxMessage bounds the message of a condition, in bytes, without the age that ends it: readiness reporters and kubectl show 255 in one
// line, with a newline.
const maxMessage = 220

// Condition returns watch's findings as a condition of the Node. The condition changes only if the verdict or the failing checks
// change. Values, times and counts are only in the report.
func (s Status) Condition(kind string) kube.Condition {
	node := s.Report.Verdict()
	var results []report.Result
	for _, res := range s.Report.Results {
		if node != verdict.Pass && res.Verdict == node {
			results = append(results, report.NewResult(res))
		}
	}
	warns := s.Policy != nil && s.Policy.Gate.Enforce == policy.Warn
	return newCondition(kind, node, results, warns, s.BreakGlass)
}

// Condition returns the report that a watch has written as a condition of the Node. If watch is late, the condition is unknown.
func Condition(kind string, d report.Watch, now time.Time) kube.Condition {
	if d.Late(now) != nil {
		return lateCondition(kind)
	}
	return newCondition(kind, d.Report.Verdict, d.Report.Results, d.Report.Policy.Enforce != "", d.BreakGlass)
}

// StoppedCondition returns the condition of a node whose watch was stopped for good.
func StoppedCondition() kube.Condition {
	return kube.Condition{Status: "Unknown", Reason: "WatchStopped", Message: "watch was stopped on the node, or nodegate was uninstalled"}
}

// lateCondition returns the condition of a node whose watch does not report.
func lateCondition(kind string) kube.Condition {
	return kube.Condition{Type: kind, Status: "Unknown", Reason: "WatchIsLate", Message: "watch does not run on the node, or is late"}
}

func newCondition(kind string, node verdict.Verdict, results []report.Result, warns bool, off string) kube.Condition {
	c := kube.Condition{Type: kind, Status: "Unknown", Reason: "Unknown", Message: "unknown: "}
	switch node {
	case verdict.Pass:
		c.Status, c.Reason, c.Message = "True", "Passed", "every requirement of the policy passes"
	case verdict.Fail:
		c.Status, c.Reason, c.Message = "False", "Failed", "fails: "
	}
	if node != verdict.Pass {
		names := []string{"the report names no check"}
		if behind := report.ResultsBehind(node, results); len(behind) > 0 {
			names = nil
			for _, res := range behind {
				names = append(names, res.Name)
			}
			c.Reason = kube.Reason(names[0])
		}
		c.Message = joinNames(c.Message, names, maxMessage)
	}
	if warns {
		c.Message = joinNames("nothing is held (enforce is warn); "+c.Message, nil, maxMessage)
	}
	if off != "" {
		c.Message = joinNames("break-glass in force ("+off+"), nothing is held or corrected; "+c.Message, nil, maxMessage)
	}
	return c
}

// Publication returns the condition to publish, with a type of "" if the policy publishes nothing. If the policy names no
// credentials, the Pod's service account is used, or kubelet's own credentials.
func (s Status) Publication(h *host.Host) kube.Publication {
	if s.Policy == nil || s.Policy.Publish.Condition == "" {
		return kube.Publication{}
	}
	p := s.Policy.Publish
	out := kube.Publication{Condition: s.Condition(p.Condition), Kubeconfig: p.Kubeconfig, Node: p.Node}
	out.Checked = s.LastRound
	switch {
	case out.Kubeconfig != "":
	case kube.InPod():
		out.Node = cmp.Or(out.Node, os.Getenv("NODE_NAME")) // set through the downward API
	default:
		out.Kubeconfig = kubeletKubeconfig(h)
	}
	return out
}

// kubeletKubeconfig returns kubelet's kubeconfig, which may not exist yet.
func kubeletKubeconfig(h *host.Host) string {
	const kubeadm, kops = "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig"
	k, err := config.ReadKubelet(h.Files)
	if name := k.Flags["kubeconfig"].Value; err == nil && name != "" {
		name, _ = host.Plain(h, "", name, nil) // errors print it
		return name
	}
	if _, err := h.Files.ReadFile(kops); err == nil {
		return kops
	}
	return kubeadm
}

// joinNames appends names to text, as many as fit into most bytes.
func joinNames(text string, names []string, most int) string {
	const more = " and more"
	for i, name := range names {
		next := name
		if i > 0 {
			next = ", " + name
		}
		rest := 0
		if i < len(names)-1 {
			rest = len(more)
		}
		if len(text)+len(next)+rest > most {
			return text + more
		}
		text += next
	}
	return strings.ToValidUTF8(text[:min(most, len(text))], "")
}
