package image_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/require"
)

const (
	pemKey     = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\n"
	pemCert    = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	sshUnit    = "[Service]\nExecStartPre=/usr/sbin/sshd -t\nExecStart=/usr/sbin/sshd -D\n[Install]\nWantedBy=multi-user.target\n"
	kubeToken  = "apiVersion: v1\nkind: Config\nusers:\n- name: tls-bootstrap\n  user:\n    token: abcdef.0123456789abcdef\n"
	kubeKey    = "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    client-certificate-data: LS0t\n    client-key-data: LS0t\n"
	kubeFiles  = "users:\n- user:\n    client-certificate: /var/lib/kubelet/pki/c.pem\n    client-key: /var/lib/kubelet/pki/c.pem\n"
	kubePlugin = "users:\n- user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: /usr/bin/aws-iam-authenticator\n      args: [token, -i, x]\n"
)

// healthyTree is an image with sshd whose host keys cloud-init makes.
func healthyTree() map[string]string {
	return map[string]string{
		"/etc/machine-id": "", "/etc/os-release": "ID=debian\n", "/usr/bin/cloud-init": "#!/usr/bin/python3\n",
		"/usr/lib/systemd/system/ssh.service": sshUnit, "/etc/systemd/system/multi-user.target.wants/ssh.service": "-> /usr/lib/systemd/system/ssh.service",
	}
}

// TestLeftovers adds one leftover at a time to an image. Each row has the verdict and the kind.
func TestLeftovers(t *testing.T) {
	for _, c := range []struct{ file, content, want string }{
		{"/etc/machine-id", "6e6f64656761746500000000006e6f64\n", "fail machine-id"},
		{"/etc/hostid", "\x01\x02\x03\x04", "fail machine-id"},
		{"/etc/ssh/ssh_host_ed25519_key", "K", "fail SSH host keys"},
		{"/etc/ssh/host/my_key", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n", "fail private key"},
		{"/etc/dropbear/dropbear_ed25519_host_key", "K", "fail SSH host keys"},
		{"/etc/iscsi/initiatorname.iscsi", "## DO NOT EDIT\nInitiatorName=iqn.1993-08.org.debian:01:3f16bb37423\n", "fail iSCSI initiator name"},
		{"/etc/nvme/hostnqn", "nqn.2014-08.org.nvmexpress:uuid:0\n", "fail NVMe host identity"},
		{"/etc/nvme/hostid", "0b2c\n", "fail NVMe host identity"},
		{"/etc/udev/rules.d/70-persistent-net.rules", "SUBSYSTEM==\"net\", ATTR{address}==\"52:54:00:12:34:56\", NAME=\"eth0\"\n",
			"fail names of network interfaces by hardware address"},
		{"/etc/sysconfig/network-scripts/ifcfg-eth0", "DEVICE=eth0\nHWADDR=52:54:00:12:34:56\n", "fail names of network interfaces by hardware address"},
		{"/var/lib/dhcpcd/duid", "00:01\n", "fail DHCP leases"},
		{"/var/lib/systemd/random-seed", "R", "fail random seed"},
		{"/boot/efi/loader/random-seed", "R", "fail random seed"},
		{"/var/lib/snmp/snmpd.conf", "oldEngineID 0x80001f88\n", "fail SNMP engine ID"},
		{"/etc/krb5.keytab", "K", "fail Kerberos host key"},
		{"/var/lib/cloud/data/instance-id", "i-1\n", "fail cloud-init's state"},
		{"/etc/.ignition-result.json", "{}\n", "fail Ignition's state"},
		{"/etc/cloud/cloud.cfg.d/99-installer.cfg", "datasource_list: [None]\n", "warn configuration by the installer"},
		{"/etc/cloud/cloud.cfg.d/90-none.cfg", "datasource_list: [ None ]\n", "warn cloud-init without a data source"},
		{"/etc/cloud/cloud.cfg", "users: []\ndatasource_list:\n  - None\n", "warn cloud-init without a data source"},
		{"/etc/nodegate/disabled", "", "warn nodegate's break-glass, which opens the gate of every node"},
		{"/var/log/journal/6e6f/system.journal", "J", "fail journal"},
		{"/var/log/syslog", "line\n", "warn logs"},
		{"/var/log/cloud-init-output.log", "line\n", "warn logs"},
		{"/root/.ssh/authorized_keys", "ssh-ed25519 AAAA builder\n", "warn authorized_keys"},
		{"/home/packer/.ssh/authorized_keys", "restrict ssh-rsa AAAA packer\n", "warn authorized_keys"},
		{"/home/packer/.ssh/id_ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n", "fail credentials"},
		{"/root/.docker/config.json", `{"auths":{"registry.example":{"auth":"dTpw"}}}`, "fail credentials"},
		{"/root/.kube/config", kubeKey, "fail credentials"},
		{"/etc/cni/net.d/calico-kubeconfig", kubeToken, "fail credentials"},
		{"/etc/ssl/private/node.key", pemKey, "fail private key"},
		{"/etc/wireguard/wg0.conf", "[Interface]\nPrivateKey = aGVsbG8=\n", "fail private key"},
		{"/etc/docker/key.json", `{"kty":"EC"}`, "fail Docker's key"},
		{"/etc/kubernetes/admin.conf", kubeKey, "fail kubeconfig"},
		{"/etc/kubernetes/kubelet.conf", kubeToken, "fail kubeconfig"},
		{"/etc/kubernetes/bootstrap-kubelet.conf", kubeToken, "fail kubeconfig"},
		{"/var/lib/kubelet/bootstrap-kubeconfig", kubeToken, "fail kubeconfig"},
		{"/etc/rancher/k3s/k3s.yaml", kubeKey, "fail kubeconfig"},
		{"/etc/kubernetes/pki/ca.key", pemKey, "fail the cluster's key"},
		{"/etc/kubernetes/pki/etcd/server.key", pemKey, "fail the cluster's key"},
		{"/etc/kubernetes/kubeadm.yaml", "kind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    token: abcdef.0123456789abcdef\n",
			"fail token to join a cluster"},
		{"/etc/rancher/k3s/config.yaml", "server: https://10.0.0.1:6443\ntoken: abc\n", "fail token to join a cluster"},
		{"/etc/systemd/system/k3s-agent.service.env", "K3S_TOKEN='abc'\n", "fail token to join a cluster"},
		{"/etc/rancher/k3s/registries.yaml", "configs:\n  r:\n    auth:\n      password: p\n", "fail password of a registry"},
		{"/etc/rancher/node/password", "abc\n", "fail node password"},
		{"/var/lib/rancher/k3s/agent/client-kubelet.key", pemKey, "fail k3s or RKE2 state"},
		{"/var/lib/rancher/rke2/server/node-token", "K10abc::server:def\n", "fail k3s or RKE2 state"},
		{"/var/lib/kubelet/pki/kubelet.key", pemKey, "fail kubelet's certificate"},
		{"/var/lib/kubelet/cpu_manager_state", `{"policyName":"none"}`, "fail kubelet's state"},
		{"/var/lib/kubelet/memory_manager_state", `{"policyName":"None"}`, "fail kubelet's state"},
		{"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", `{"Data":{}}`, "fail kubelet's state"},
		{"/var/lib/etcd/member/wal/0.wal", "W", "fail etcd's data"},
		{"/var/lib/calico/nodename", "builder\n", "fail state of the CNI"},
		{"/etc/hostname", "ip-10-0-3-7\n", "warn hostname"},
	} {
		t.Run(c.file, func(t *testing.T) {
			tree := healthyTree()
			tree[c.file] = c.content
			h := checkstest.Tree(t, tree)
			r := checkstest.On(t.Context(), t, h, checks.Image, "image.identity", "")
			if got := fmt.Sprint(r.Verdict, " ", r.State.Got); got != c.want || r.Err != nil {
				t.Errorf("%s, want %s (%v)", got, c.want, r.Err)
			}
			if len(r.State.Evidence) == 0 || !strings.HasPrefix(c.file, r.State.Evidence[0].Source) {
				t.Errorf("the evidence does not name the file: %v", r.State.Evidence)
			}
			recorded, snapshot := host.Record(h)
			defer func() {
				text, err := json.Marshal(snapshot)
				require.NoError(t, err)
				for _, secret := range []string{"abcdef.0123456789abcdef", "MHcC", "b3Bl", "dTpw", "aGVsbG8=", "LS0t", "iqn.1993-08", "K10abc", "token: abc"} {
					assert.True(t, !strings.Contains(string(text), secret), "the snapshot holds %s", secret)
				}
			}()
			got := checkstest.On(t.Context(), t, recorded, checks.Image, "image.identity", "")
			replayed := checkstest.On(t.Context(), t, host.Replay(snapshot), checks.Image, "image.identity", "")
			if want := checkstest.Text(r); checkstest.Text(got) != want || checkstest.Text(replayed) != want {
				t.Errorf("recorded %s\nreplayed %s\nwant %s", checkstest.Text(got), checkstest.Text(replayed), want)
			}
		})
	}
}

// TestNotLeftovers adds files that are fine in an image, though a program of another name or a careless look would take them for leftovers.
func TestNotLeftovers(t *testing.T) {
	tree := healthyTree()
	maps.Copy(tree, map[string]string{
		"/etc/iscsi/initiatorname.iscsi": "GenerateName=yes\n", "/etc/nvme/hostnqn": "", "/etc/hostname": "localhost.localdomain\n",
		"/etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAA\n", "/root/.ssh/id_ed25519.pub": "ssh-ed25519 AAAA\n", "/root/.npmrc": "registry=https://mirror.example\n",
		"/root/.ssh/authorized_keys": "# keys come from the metadata service\n", "/root/.kube/config": kubePlugin,
		"/root/.docker/config.json":  `{"auths":{},"credHelpers":{"x.ecr.amazonaws.com":"ecr-login"}}`,
		"/etc/kubernetes/pki/ca.crt": pemCert, "/etc/kubernetes/kubelet.conf": kubeFiles, "/var/lib/kubelet/kubeconfig": kubePlugin,
		"/etc/kubernetes/manifests/kube-proxy.yaml": "kind: Pod\nspec: {volumes: [{secret: {secretName: x}}]}\n",
		"/etc/kubernetes/kubelet/config.json":       `{"kind":"KubeletConfiguration","authentication":{"webhook":{"enabled":true}}}`,
		"/etc/kubernetes/kubeadm.yaml":              "kind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    token: ${TOKEN}\n",
		"/etc/rancher/k3s/config.yaml":              "server: https://10.0.0.1:6443\ntoken-file: /run/token\n",
		"/etc/rancher/k3s/registries.yaml":          "mirrors:\n  docker.io:\n    endpoint: [https://mirror.example]\n",
		"/etc/ssl/private/ssl-cert-snakeoil.key":    pemKey, "/etc/ssl/certs/ca-certificates.crt": pemCert,
		"/etc/sysconfig/network-scripts/ifcfg-eth0": "DEVICE=eth0\nBOOTPROTO=dhcp\n", "/var/lib/kubelet/device-plugins/": "",
		"/var/log/wtmp": "W", "/var/log/dpkg.log": "line\n", "/var/log/apt/history.log": "line\n", "/var/log/syslog": "",
		"/var/lib/rancher/k3s/agent/images/airgap.tar": "T", "/etc/salt/minion": "master: salt\n", "/etc/puppet/puppet.conf": "[main]\n",
		"/var/ossec/etc/client.keys": "", "/etc/teleport.yaml": "auth_token: /var/lib/teleport/token\n",
		"/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db": "preloaded images",
	})
	r := checkstest.On(t.Context(), t, checkstest.Tree(t, tree), checks.Image, "image.identity", "")
	if text := checkstest.Text(r); !strings.HasPrefix(text, "pass\n") {
		t.Error(text)
	}
}
