package units

import "slices"

// WatchUnit is the service that keeps the node as apply made it.
const WatchUnit = "nodegate-watch.service"

// watchUnit starts after the first apply, beside kubelet's gate: neither waits for
// the other. docs/operations.md says what it may do, and why.
func watchUnit(prog Program) []byte {
	return render(prog.unitHeader()+"# Sets up links that appear later, and corrects or reports drift.",
		section("Unit",
			"Description", "Watch the Kubernetes node policy",
			"After", ApplyUnit, // while the gate is switched off watch only reports: systemd would not start it again after that
			"StartLimitIntervalSec", "0", // it uses a corrected policy without anybody's help
		), section("Service", slices.Concat([]string{
			"Type", "notify",
			"ExecStart", prog.path + " watch",
			"ExecReload", "/bin/kill -HUP $MAINPID",
			"WatchdogSec", "60s",
			"Restart", "always",
			"RestartSec", "3s",
			"RuntimeDirectory", "nodegate",
			"RuntimeDirectoryPreserve", "yes",
			// A leak must not use up the node's memory, nor a bug its processors.
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

// systemCalls are those that watch and the publisher need. adjtimex reads the state of the clock: without CAP_SYS_TIME it sets
// nothing. ProtectClock= would forbid it, and adds nothing else.
const systemCalls = "@system-service adjtimex"

// sandbox is what neither watch nor the publisher needs.
func sandbox() []string {
	return []string{
		"NoNewPrivileges", "yes",
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

// networkDropIn lets watch reach the API server, because the policy has what why says.
func networkDropIn(prog Program, why string) []byte {
	return render(prog.unitHeader()+"# The policy has "+why+".",
		section("Service", "IPAddressDeny", "", "IPAddressAllow", ""))
}

// writableDropIn gives a unit's command what the gate has on its own command line; the unit may be a package's.
func writableDropIn(prog Program, unit, command string) File {
	return File{Path: unitDir + "/" + unit + ".d/10-writable.conf", Mode: 0o644, Content: render(
		prog.unitHeader()+"# Installed with --allow-writable: others than root may write the policy.",
		section("Service", "ExecStart", "", "ExecStart", prog.path+command+prog.allow))}
}
