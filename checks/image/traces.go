package image

import "nodegate/internal/host/config"

// traceLeftovers are what running the image leaves behind.
func traceLeftovers() []leftover {
	return []leftover{
		{kind: "cloud-init's state", patterns: []string{
			"/var/lib/cloud/instance", "/var/lib/cloud/instances/*", "/var/lib/cloud/data/*", "/var/lib/cloud/sem/*",
		}},
		{kind: "Ignition's state", patterns: []string{
			"/etc/.ignition-result.json", "/etc/ignition-machine-config-encapsulated.json",
		}},
		{kind: "state of the Azure agent", patterns: []string{
			"/var/lib/waagent/provisioned", "/var/lib/waagent/*.prv", "/var/lib/waagent/ovf-env.xml", "/var/lib/waagent/SharedConfig.xml",
		}},
		{kind: "configuration by the installer", minor: true, patterns: []string{ // it keeps cloud-init from configuring the network or the users
			"/etc/cloud/cloud.cfg.d/99-installer.cfg", "/etc/cloud/cloud.cfg.d/90-installer-network.cfg",
			"/etc/cloud/cloud.cfg.d/subiquity-disable-cloudinit-networking.cfg",
		}},
		{kind: "cloud-init without a data source", minor: true, patterns: []string{"/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg"},
			holds: []config.Trait{config.NoDataSource}, remedy: deleteLines(`^[[:space:]]*datasource_list:|^[[:space:]]*-[[:space:]]*None`)},
		{kind: "nodegate's break-glass, which opens the gate of every node", minor: true, exists: true,
			patterns: []string{"/etc/nodegate/disabled"}},
		{kind: "journal", patterns: []string{"/var/log/journal/*"}},
		{kind: "logs", minor: true, patterns: []string{
			"/var/log/syslog", "/var/log/messages", "/var/log/auth.log", "/var/log/secure", "/var/log/kern.log", "/var/log/daemon.log",
			"/var/log/user.log", "/var/log/cloud-init.log", "/var/log/cloud-init-output.log", "/var/log/pods/*",
			"/var/log/containers/*",
		}},
		{kind: "core dumps", minor: true, patterns: []string{"/var/lib/systemd/coredump/*", "/var/crash/*.crash", "/var/spool/abrt/*"}},
	}
}
