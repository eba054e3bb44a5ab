package image_test

import (
	"maps"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/verdict"
)

// healthy is the layout of a public image, as far as the checks of images read it.
type healthy struct {
	name, id, hostname string
	machineID          string // "-" if the file is missing
	parts              []map[string]string
	files              map[string]string
}

// healthyImages returns public cloud images by their layouts: which program makes host keys, which name they carry, and the files that
// look like leftovers.
func healthyImages() []healthy {
	const units, wants = "/usr/lib/systemd/system/", "/etc/systemd/system/multi-user.target.wants/"
	on := func(unit, text string) map[string]string {
		return map[string]string{units + unit: text, wants + unit: "-> " + units + unit}
	}
	cloudInit := map[string]string{
		"/usr/bin/cloud-init": "#!/usr/bin/python3\n", "/etc/cloud/cloud.cfg": "preserve_hostname: false\ncloud_init_modules:\n - ssh\n",
		"/var/lib/cloud/scripts/per-boot/": "", "/usr/lib/systemd/system/cloud-init.target": "[Unit]\n",
	}
	debian := on("ssh.service", sshUnit)
	debian13 := map[string]string{units + "sshd-keygen.service": debianKeygen,
		"/etc/systemd/system/ssh.service.wants/sshd-keygen.service": "-> " + units + "sshd-keygen.service"}
	ubuntuSocket := map[string]string{units + "ssh.service": sshUnit, units + "ssh.socket": "[Socket]\nListenStream=22\n",
		"/etc/systemd/system/sockets.target.wants/ssh.socket": "-> " + units + "ssh.socket",
		"/etc/ssl/private/ssl-cert-snakeoil.key":              pemKey, "/etc/iscsi/initiatorname.iscsi": "GenerateName=yes\n"}
	fedora := map[string]string{units + "sshd-keygen.target": fedoraTarget, units + "sshd-keygen@.service": fedoraKeygen,
		"/etc/sysconfig/network-scripts/ifcfg-eth0": "DEVICE=eth0\nBOOTPROTO=dhcp\nONBOOT=yes\n"}
	maps.Copy(fedora, on("sshd.service", "[Unit]\nWants=sshd-keygen.target\n[Service]\nExecStart=/usr/sbin/sshd -D $OPTIONS\n"))
	rhui := map[string]string{"/etc/pki/rhui/private/client.key": pemKey, "/etc/pki/tls/private/": ""}
	ssm := map[string]string{"/etc/amazon/ssm/seelog.xml.template": "<seelog>\n", "/var/lib/amazon/ssm/": ""}
	maps.Copy(ssm, on("amazon-ssm-agent.service", "[Service]\nExecStart=/usr/bin/amazon-ssm-agent\n"))
	eks := map[string]string{"/var/lib/kubelet/kubeconfig": kubePlugin, "/etc/eks/image-credential-provider/config.json": "{}",
		"/etc/kubernetes/kubelet/kubelet-config.json": `{"kind":"KubeletConfiguration","authentication":{"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}}}`}
	flatcar := map[string]string{units + "sshd@.service": "[Unit]\nWants=sshd-keygen.service\n[Service]\nExecStart=-/usr/sbin/sshd -i\n",
		units + "sshd-keygen.service":              "[Service]\nType=oneshot\nExecStart=/usr/lib/flatcar/sshd_keygen\n",
		units + "sockets.target.wants/sshd.socket": "-> ../sshd.socket", units + "sshd.socket": "[Socket]\nAccept=yes\n"}
	google := on("google-guest-agent.service", "[Service]\nExecStart=/usr/bin/google_guest_agent\n")
	azure := on("walinuxagent.service", "[Service]\nExecStart=/usr/sbin/waagent -daemon\n")
	azure["/etc/waagent.conf"] = "ResourceDisk.EnableSwap=n\n"
	suse := on("sshd.service", "[Service]\nExecStartPre=/usr/sbin/sshd-gen-keys-start\nExecStart=/usr/sbin/sshd -D\n")
	list := func(parts ...map[string]string) []map[string]string { return parts }
	return []healthy{
		{"debian-11-genericcloud", "debian", "debian", "uninitialized", list(debian, cloudInit), nil},
		{"debian-12-genericcloud", "debian", "localhost", "uninitialized", list(debian, cloudInit), nil},
		{"debian-13-genericcloud", "debian", "localhost", "uninitialized", list(debian, debian13, cloudInit), nil},
		{"debian-13-nocloud", "debian", "localhost", "uninitialized", list(debian, debian13), nil},
		{"ubuntu-20.04", "ubuntu", "ubuntu", "", list(debian, cloudInit), map[string]string{"/etc/iscsi/initiatorname.iscsi": "GenerateName=yes\n"}},
		{"ubuntu-22.04", "ubuntu", "ubuntu", "", list(debian, cloudInit), map[string]string{"/var/lib/snapd/state.json": "{}"}},
		{"ubuntu-24.04", "ubuntu", "ubuntu", "", list(ubuntuSocket, cloudInit), map[string]string{"/etc/nvme/hostnqn": ""}},
		{"ubuntu-24.04-minimal", "ubuntu", "ubuntu", "", list(ubuntuSocket, cloudInit), nil},
		{"amazon-linux-2", "amzn", "localhost.localdomain", "", list(fedora, cloudInit, ssm), nil},
		{"amazon-linux-2023", "amzn", "localhost", "uninitialized", list(fedora, cloudInit, ssm), nil},
		{"eks-al2", "amzn", "localhost.localdomain", "", list(fedora, cloudInit, ssm, eks), nil},
		{"eks-al2023", "amzn", "localhost", "uninitialized", list(fedora, cloudInit, ssm, eks), map[string]string{"/etc/eks/nodeadm/config.json": "{}"}},
		{"flatcar-stable", "flatcar", "localhost", "-", list(flatcar), nil},
		{"flatcar-lts", "flatcar", "", "-", list(flatcar), map[string]string{"/etc/flatcar/update.conf": "GROUP=lts\n"}},
		{"cos-117", "cos", "localhost", "-", list(fedora, google), map[string]string{"/etc/default/instance_configs.cfg": "[InstanceSetup]\nset_host_keys = true\n"}},
		{"cos-121", "cos", "", "", list(fedora, google), map[string]string{"/usr/share/oem/": ""}},
		{"fedora-cloud-42", "fedora", "localhost", "uninitialized", list(fedora, cloudInit), nil},
		{"fedora-coreos", "fedora", "", "-", list(fedora), map[string]string{"/usr/lib/ignition/base.d/": ""}},
		{"centos-stream-9", "centos", "localhost.localdomain", "uninitialized", list(fedora, cloudInit), nil},
		{"rhel-8", "rhel", "localhost.localdomain", "", list(fedora, cloudInit, rhui), map[string]string{"/etc/pki/consumer/": ""}},
		{"rhel-9", "rhel", "localhost.localdomain", "uninitialized", list(fedora, cloudInit, rhui), map[string]string{"/var/lib/rhsm/facts/": ""}},
		{"rocky-9", "rocky", "localhost.localdomain", "uninitialized", list(fedora, cloudInit), nil},
		{"almalinux-9", "almalinux", "localhost.localdomain", "uninitialized", list(fedora, cloudInit), nil},
		{"oracle-linux-9", "ol", "localhost.localdomain", "", list(fedora, cloudInit), map[string]string{"/etc/oracle-cloud-agent/agent.yml": "logging: {}\n"}},
		{"sles-15", "sles", "localhost", "", list(suse, cloudInit), nil},
		{"opensuse-leap-15", "opensuse-leap", "localhost.localdomain", "", list(suse, cloudInit), map[string]string{"/etc/iscsi/": ""}},
		{"azure-linux-3", "azurelinux", "", "uninitialized", list(fedora, cloudInit, azure), nil},
		{"ubuntu-24.04-azure", "ubuntu", "ubuntu", "", list(ubuntuSocket, cloudInit, azure), map[string]string{"/var/lib/waagent/": ""}},
	}
}

// TestHealthyImages: each check of an image passes on public images.
func TestHealthyImages(t *testing.T) {
	policy := "check \"image.identity\" {}\ncheck \"image.swap\" {}\ncheck \"image.mounts\" {}\ncheck \"image.fapolicyd\" {}\n"
	for _, image := range healthyImages() {
		t.Run(image.name, func(t *testing.T) {
			tree := map[string]string{
				"/etc/os-release": "ID=" + image.id + "\n", "/etc/hostname": image.hostname + "\n",
				"/etc/fstab":              "UUID=2a3b / ext4 defaults 0 1\nLABEL=UEFI /boot/efi vfat umask=0077 0 1\n",
				"/etc/ssh/sshd_config":    "PasswordAuthentication no\n",
				"/var/log/journal/":       "",
				"/etc/kubernetes/pki/":    "",
				"/root/.bash_logout":      "clear\n",
				"/etc/skel/.bash_history": "",
			}
			if image.machineID != "-" {
				tree["/etc/machine-id"] = image.machineID
			}
			for _, part := range append(image.parts, image.files) {
				maps.Copy(tree, part)
			}
			h := checkstest.Tree(t, tree)
			for _, r := range checks.Inspect(t.Context(), h, checks.Image, catalog.For(checkstest.Load(t, policy), checks.Image)).Results {
				if r.Verdict != verdict.Pass && r.Verdict != verdict.Skipped {
					t.Errorf("%s: %s", r.Name, strings.ReplaceAll(checkstest.Text(r), h.Root, ""))
				}
			}
		})
	}
	if n := len(healthyImages()); n < 25 {
		t.Errorf("only %d images", n)
	}
}
