package units

// WatchUnit is the service that keeps the node what apply made it.
const WatchUnit = "nodegate-watch.service"

// watchUnit starts after the first apply, beside kubelet's gate: neither waits
// for the other. What it may do, and why, is told in
// docs/operations.md.
func watchUnit(prog Program) []byte {
	return render(prog.header()+"# Settles links that appear later, and corrects or tells what drifts.",
		section("Unit",
			"Description", "Watch the Kubernetes node policy",
			"ConditionKernelCommandLine", "!nodegate=off",
			"ConditionPathExists", "!"+Disabled,
			"After", ApplyUnit,
			"StartLimitIntervalSec", "0", // a policy that is put right is taken up without anybody's help
		), section("Service",
			"Type", "notify",
			"ExecStart", prog.path+" watch",
			"ExecReload", "/bin/kill -HUP $MAINPID",
			"WatchdogSec", "60s",
			"Restart", "always",
			"RestartSec", "3s",
			"RuntimeDirectory", "nodegate",
			"RuntimeDirectoryPreserve", "yes",
			// A leak must not take the node's memory, nor a bug its processors.
			"MemoryMax", "512M",
			"TasksMax", "64",
			"OOMScoreAdjust", "-500",
			"CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_MODULE",
			"NoNewPrivileges", "yes",
			"UMask", "0022",
			"ProtectSystem", "strict",
			"ProtectHome", "yes",
			"PrivateTmp", "yes",
			"PrivateDevices", "yes",
			"ProtectControlGroups", "yes",
			"ProtectClock", "yes",
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
			"IPAddressDeny", "any",
			"IPAddressAllow", "localhost",
			"SystemCallArchitectures", "native",
			"SystemCallFilter", "@system-service @module",
			"SystemCallFilter", "~@resources",
			"SystemCallErrorNumber", "EPERM",
		), section("Install",
			"WantedBy", "multi-user.target",
		))
}
