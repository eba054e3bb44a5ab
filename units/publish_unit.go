package units

import (
	"path"
	"slices"

	"nodegate/policy"
)

// The units of a policy whose publish block has by = "timer".
const (
	PublishTimer   = "nodegate-publish.timer"
	publishService = "nodegate-publish.service"
)

// Started returns the units that systemd starts at boot.
func Started(p *policy.Policy) []string {
	all := []string{ApplyUnit, WatchUnit}
	if p.Publish.By == policy.ByTimer {
		all = append(all, PublishTimer)
	}
	return all
}

// publishFiles returns the files for a publish block: a drop-in that lets watch reach the API server, or a timer and its service.
// Without the block, watch has no network access.
func publishFiles(p *policy.Policy, prog Program) []File {
	switch {
	case p.Publish.Condition == "", p.Publish.By == policy.ByPod:
		return nil
	case p.Publish.By == policy.ByWatch:
		return []File{{Path: unitDir + "/" + WatchUnit + ".d/10-publish.conf", Mode: 0o644,
			Content: networkDropIn(prog, "a publish block: watch writes a condition of this node's Node")}}
	}
	return []File{
		{Path: unitDir + "/" + publishService, Mode: 0o644, Content: publishUnit(p.Gate, prog)},
		{Path: unitDir + "/" + PublishTimer, Mode: 0o644, Content: publishTimer(prog)},
		{Path: unitDir + "/timers.target.wants/" + PublishTimer, Target: unitDir + "/" + PublishTimer},
	}
}

// publishUnit returns a unit that inspects the node and changes nothing on it. The unit also succeeds if the node fails its
// policy or is not registered as a Node yet.
func publishUnit(g policy.Gate, prog Program) []byte {
	return render(prog.unitHeader()+"# Writes the verdict as a condition of this node's Node.",
		section("Unit",
			"Description", "Publish the verdict on the Kubernetes node policy",
			"RequiresMountsFor", path.Dir(prog.path)+" /etc/nodegate",
			"After", ApplyUnit+" "+g.Unit,
		), section("Service", slices.Concat([]string{
			"Type", "oneshot",
			"ExecStart", prog.path + " publish --timeout 50s",
			"SuccessExitStatus", "1 3",
			"TimeoutStartSec", "60s",
			"MemoryMax", "512M",
			"TasksMax", "64",
			"CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_RAW",
		}, sandbox(), []string{
			"ProtectKernelTunables", "yes",
			"SystemCallFilter", systemCalls,
			"SystemCallFilter", "~@resources",
		})...))
}

// publishTimer returns a timer that starts the unit once a minute. The unit writes to the API every five minutes, and when
// the verdict has changed.
func publishTimer(prog Program) []byte {
	return render(prog.unitHeader()+"# Starts "+publishService+" once a minute.",
		section("Unit", "Description", "Publish the verdict on the Kubernetes node policy once a minute"),
		section("Timer", "OnActiveSec", "5s", "OnUnitInactiveSec", "60s", "RandomizedDelaySec", "6s", "AccuracySec", "1s"),
		section("Install", "WantedBy", "timers.target"))
}
