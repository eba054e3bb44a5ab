package image

import "nodegate/internal/host/config"

const hostKeys = "SSH host keys"

// machineLeftovers are the identities of the machine on which the image was made.
func machineLeftovers() []leftover {
	return []leftover{
		// Without the file, systemd treats the boot as the first one and resets the enabled units.
		{kind: "machine-id", patterns: []string{"/etc/machine-id"}, remedy: empty},
		{kind: "machine-id", patterns: []string{
			"/var/lib/dbus/machine-id", "/etc/hostid", "/var/lib/zypp/AnonymousUniqueId", "/etc/insights-client/machine-id",
		}},
		{kind: hostKeys, patterns: []string{"/etc/ssh/ssh_host_*_key", "/etc/dropbear/dropbear_*_host_key"}},
		{kind: "NVMe host identity", patterns: []string{"/etc/nvme/hostnqn", "/etc/nvme/hostid"}}, // libnvme falls back to the product's UUID
		{kind: "DHCP leases", patterns: []string{
			"/var/lib/dhcp/*.lease*", "/var/lib/dhclient/*.lease*", "/var/lib/dhcpcd/*", "/var/db/dhcpcd/*", "/etc/dhcpcd.duid",
			"/etc/dhcpcd.secret",
			"/var/lib/NetworkManager/*.lease", "/var/lib/NetworkManager/secret_key", "/var/lib/wicked/*.xml", "/var/lib/dhcpv6/*",
			"/var/lib/systemd/network/*.lease",
		}},
		{kind: "names of network interfaces by hardware address", patterns: []string{
			"/etc/udev/rules.d/*persistent-net.rules", "/etc/sysconfig/network-scripts/ifcfg-*", "/etc/sysconfig/network/ifcfg-*",
		}, holds: []config.Trait{config.HardwareAddress}, remedy: deleteLines("([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")},
		{kind: "random seed", patterns: []string{
			"/var/lib/systemd/random-seed", "/var/lib/random-seed", "/var/lib/urandom/random-seed", "/var/lib/misc/random-seed",
			"/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/efi/loader/random-seed", "/loader/random-seed",
		}},
		{kind: "systemd's credential secret", patterns: []string{"/var/lib/systemd/credential.secret"}},
		{kind: "SNMP engine ID", patterns: []string{"/var/lib/snmp/snmpd.conf", "/var/lib/net-snmp/snmpd.conf"},
			holds: []config.Trait{config.EngineID}},
		{kind: "Docker's key", patterns: []string{"/etc/docker/key.json"}},
		{kind: "Kerberos host key", patterns: []string{"/etc/krb5.keytab"}},
		{kind: "directory membership", patterns: []string{"/var/lib/samba/private/secrets.tdb", "/var/lib/samba/secrets.tdb"}},
	}
}
