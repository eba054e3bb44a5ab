package units

import "slices"

// WatchUnit is the service that keeps the policy applied while the node runs.
const WatchUnit = "nodegate-watch.service"

// watchUnit returns the content of WatchUnit. It starts after the first apply, in parallel with
// kubelet's gate. docs/operations.md explains its permissions.
func watchUnit(prog Program) []byte {
	return render(prog.unitHeader()+"# Applies the policy to links that appear later, and corrects or reports drift.",
		section("Unit",
			"Description", "Watch the Kubernetes node policy",
			"After", ApplyUnit, // no break-glass condition: systemd would not start the unit again afterwards; watch then only reports
			"StartLimitIntervalSec", "0", // systemd keeps restarting it, so that a corrected policy takes effect without a manual start
		), section("Service", slices.Concat([]string{
			"Type", "notify",
			"ExecStart", prog.path + " watch",
			"ExecReload", "/bin/kill -HUP $MAINPID",
			"WatchdogSec", "60s",
			"Restart", "always",
			"RestartSec", "3s",
			"RuntimeDirectory", "nodegate",
			"RuntimeDirectoryPreserve", "yes",
			// Limit the damage of a memory leak or of runaway threads.
			"MemoryMax", "512M",
			"TasksMax", "64",
			"OOMScoreAdjust", "-500",
			"CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_MODULE",
		}, sandbox(), []string{
			"IPAddressDeny", "any",
			"IPAddressAllow", "localhost",
			"SystemCallFilter", systemCalls + " @module",
			"SystemCallFilter", "~@resources",
		})...), section("Install",
			"WantedBy", "multi-user.target",
		))
}

// systemCalls lists the system calls that watch needs. adjtimex reads the state of the clock; without
// CAP_SYS_TIME it cannot set it. ProtectClock= would forbid adjtimex and add no other protection.
const systemCalls = "@system-service adjtimex"

// sandbox returns the restrictions of watch. NoNewPrivileges= is not among them: it protects nothing beyond
// what CapabilityBoundingSet= does for root, and SELinux would deny and log that iptables-save and modprobe enter their own domains.
func sandbox() []string {
	return slices.Concat(limits(), []string{
		"UMask", "0022",
		"ProtectSystem", "strict",
		"ProtectHome", "yes",
		"PrivateTmp", "yes",
		"PrivateDevices", "yes",
		"ProtectControlGroups", "yes",
		"ProtectHostname", "yes",
		"ProtectKernelLogs", "yes",
		"RestrictAddressFamilies", "AF_UNIX AF_NETLINK AF_INET AF_INET6",
		"RestrictNamespaces", "yes",
	}, commonRestrictions())
}

// commonRestrictions returns the restrictions of every unit of nodegate's own.
func commonRestrictions() []string {
	return []string{
		"RestrictRealtime", "yes",
		"RestrictSUIDSGID", "yes",
		"LockPersonality", "yes",
		"MemoryDenyWriteExecute", "yes",
		"RemoveIPC", "yes",
		"KeyringMode", "private",
		"SystemCallArchitectures", "native",
		"SystemCallErrorNumber", "EPERM",
	}
}

// limits returns the limits of nodegate's own units, which a machine's defaults must not lower: Go's runtime reserves more address space
// than a limit of 512 MiB leaves, and dies.
func limits() []string { return []string{"LimitNOFILE", "1024", "LimitAS", "infinity"} }

// Started returns the units that systemd starts at boot.
func Started() []string { return []string{ApplyUnit, WatchUnit} }

// sendPackets returns the checks that send packets through a copy of the node's network.
func sendPackets() []string {
	return []string{"kubeproxy.way", "packetfilter.forward-drop", "packetfilter.input-drop"}
}

// packetsDropIn returns a drop-in that lets watch build a copy of the node's network, in which IPAddressDeny= would lose packets too.
func packetsDropIn(prog Program, why string) []byte {
	return render(prog.unitHeader()+"# The policy has "+why+".", section("Service", "IPAddressDeny", "", "IPAddressAllow", "",
		"RestrictNamespaces", "", "RestrictNamespaces", "user net", "TasksMax", "128"))
}

// networkDropIn returns a drop-in that lets watch reach other addresses. why names the block of the policy that needs it.
func networkDropIn(prog Program, why string) []byte {
	return render(prog.unitHeader()+"# The policy has "+why+".",
		section("Service", "IPAddressDeny", "", "IPAddressAllow", ""))
}

// writableDropIn returns a drop-in that adds --allow-writable to a unit's command. It is a drop-in because the unit may belong to
// a package.
func writableDropIn(prog Program, unit, command string) File {
	return File{Path: unitDir + "/" + unit + ".d/10-writable.conf", Mode: 0o644, Content: render(
		prog.unitHeader()+"# Installed with --allow-writable: users other than root may write the policy.",
		section("Service", "ExecStart", "", "ExecStart", prog.path+command+prog.allow))}
}
