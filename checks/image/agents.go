package image

// agentLeftovers are the registrations of agents at their servers: two machines with one registration are one machine to the server.
func agentLeftovers() []leftover {
	registration := func(agent string, patterns ...string) leftover {
		return leftover{kind: "registration of " + agent, patterns: patterns}
	}
	return []leftover{
		registration("SSM", "/var/lib/amazon/ssm/registration", "/var/lib/amazon/ssm/Vault/Store/*", "/var/lib/amazon/ssm/Vault/Manifest",
			"/var/snap/amazon-ssm-agent/*/registration"),
		registration("ECS", "/var/lib/ecs/data/*"),
		registration("Azure Arc", "/var/opt/azcmagent/certs/*", "/var/opt/azcmagent/agentconfig.json"),
		registration("Tailscale", "/var/lib/tailscale/tailscaled.state"),
		registration("ZeroTier", "/var/lib/zerotier-one/identity.secret", "/var/lib/zerotier-one/identity.public"),
		registration("NetBird", "/etc/netbird/config.json", "/var/lib/netbird/*.json"),
		registration("Teleport", "/var/lib/teleport/host_uuid", "/var/lib/teleport/proc/*"),
		registration("Puppet", "/etc/puppetlabs/puppet/ssl/*/*.pem", "/var/lib/puppet/ssl/*/*.pem", "/etc/puppet/ssl/*/*.pem"),
		registration("Salt", "/etc/salt/minion_id", "/etc/salt/pki/minion/minion.pem", "/etc/salt/pki/minion/minion.pub",
			"/etc/salt/pki/minion/minion_master.pub"),
		registration("Chef", "/etc/chef/client.pem", "/etc/chef/validation.pem", "/etc/cinc/client.pem", "/etc/cinc/validation.pem"),
		registration("Consul", "/opt/consul/node-id", "/var/lib/consul/node-id", "/opt/consul/serf/*", "/var/lib/consul/serf/*"),
		registration("Nomad", "/opt/nomad/client/client-id", "/opt/nomad/data/client/client-id", "/var/lib/nomad/client/client-id",
			"/opt/nomad/client/secret-id", "/opt/nomad/data/client/secret-id", "/var/lib/nomad/client/secret-id"),
		registration("Wazuh", "/var/ossec/etc/client.keys"),
		registration("Elastic Agent", "/opt/Elastic/Agent/fleet.enc", "/etc/elastic-agent/fleet.enc", "/var/lib/elastic-agent/fleet.enc"),
		registration("Splunk", "/opt/splunkforwarder/etc/instance.cfg", "/opt/splunk/etc/instance.cfg"),
		registration("Datadog", "/etc/datadog-agent/auth_token", "/etc/datadog-agent/auth/token"),
		registration("Netdata", "/var/lib/netdata/registry/netdata.public.unique.id", "/var/lib/netdata/cloud.d/claimed_id",
			"/var/lib/netdata/cloud.d/private.pem"),
		registration("Qualys", "/etc/qualys/hostid", "/etc/qualys/cloud-agent/qagent-hostid"),
		registration("Zabbix", "/var/lib/zabbix/*.psk"),
		registration("Landscape", "/var/lib/landscape/client/broker.bpickle"),
		registration("Ubuntu Pro", "/var/lib/ubuntu-advantage/private/machine-token.json", "/var/lib/ubuntu-pro/private/machine-token.json"),
		registration("Red Hat", "/etc/sysconfig/rhn/systemid", "/etc/pki/consumer/cert.pem", "/etc/pki/consumer/key.pem",
			"/etc/pki/entitlement/*.pem"),
		registration("SUSE", "/etc/zypp/credentials.d/SCCcredentials", "/etc/zypp/credentials.d/NCCcredentials"),
		registration("FreeIPA", "/etc/ipa/default.conf", "/var/lib/ipa-client/sysrestore/*"),
		registration("Docker Swarm", "/var/lib/docker/swarm/*"),
		registration("GitLab Runner", "/etc/gitlab-runner/.runner_system_id"),
		registration("Cloudflare Tunnel", "/root/.cloudflared/*.json", "/etc/cloudflared/*.json"),
	}
}
