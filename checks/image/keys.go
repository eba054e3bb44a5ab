package image

import "nodegate/internal/host/config"

const authorizedKeys = "authorized_keys"

// keyLeftovers are keys, tokens and passwords that belong to no single program.
func keyLeftovers() []leftover {
	return []leftover{
		{kind: authorizedKeys, minor: true, holds: []config.Trait{config.PublicKey}, patterns: append(
			homes(".ssh/authorized_keys", ".ssh/authorized_keys2", ".ssh/authorized_keys.d/*"),
			"/etc/ssh/authorized_keys/*", "/etc/ssh/authorized_keys.d/*")},
		{kind: "credentials", patterns: homes(".netrc", ".aws/credentials", ".git-credentials", ".vault-token", ".config/gcloud/credentials.db",
			".config/gcloud/access_tokens.db", ".config/gcloud/application_default_credentials.json", ".azure/accessTokens.json",
			".azure/msal_token_cache.json", ".config/gh/hosts.yml", ".pgpass")},
		{kind: "credentials", holds: secrets(), patterns: append(
			homes(".aws/config", ".npmrc", ".pypirc", ".docker/config.json", ".config/containers/auth.json", ".kube/config", ".kube/*.conf",
				".ssh/id_*", ".ssh/*.pem", ".ssh/*.key", "*.pem", "*.key", "*.kubeconfig", "kubeconfig", "kubeadm*", "*join*.sh"),
			"/run/containers/0/auth.json", "/etc/containers/auth.json", "/etc/cni/net.d/*kubeconfig*", "/etc/cni/net.d/*/*kubeconfig*")},
		{kind: "private key", holds: []config.Trait{config.PrivateKey}, patterns: []string{
			"/etc/ssh/*", "/etc/ssh/*/*", "/etc/ssl/private/*", "/etc/pki/tls/private/*", "/etc/pki/consumer/*",
			"/etc/pki/entitlement/*", "/etc/ssl/*.key", "/etc/ssl/*.pem", "/etc/ssl/*/*.key", "/etc/pki/*.key",
			"/etc/letsencrypt/archive/*/*", "/etc/letsencrypt/accounts/*/*/*/*", "/etc/wireguard/*",
			"/etc/openvpn/*", "/etc/openvpn/*/*", "/etc/ipsec.d/private/*", "/etc/swanctl/private/*", "/etc/nebula/*", "/etc/etcd/*",
			"/etc/etcd/*/*", "/etc/ssl/etcd/*", "/etc/ssl/etcd/ssl/*", "/etc/docker/certs.d/*/*",
			"/etc/containerd/certs.d/*/*", "/opt/*.pem", "/opt/*.key", "/etc/*.pem", "/etc/*.key", "/tmp/*.pem", "/tmp/*.key",
			"/var/tmp/*.pem", "/var/tmp/*.key",
			// Debian's ssl-cert makes the same self-signed certificate for every image; no client can trust it.
		}, except: []string{"/etc/ssh/moduli", "/etc/ssl/private/ssl-cert-snakeoil.key", "/etc/pki/tls/private/localhost.key"}},
	}
}
