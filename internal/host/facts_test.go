package host_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/hosttest"
)

// TestOSRelease: the second file is the fallback, as os-release(5) specifies.
func TestOSRelease(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{"/usr/lib/os-release": "ID=flatcar\n"}}
	r, err := m.Host().OSRelease()
	assert.True(t, err == nil && r["ID"] == "flatcar", "%v, %v", r, err)
	m.Files["/etc/os-release"] = "# mine\nID=\"debian\"\nVERSION_ID='12'\n"
	v, ok := m.Host().Fact(t.Context(), "os.version")
	assert.True(t, ok && v == "12", "os.version: %v, %t", v, ok)
	m.Files["/etc/os-release"] = strings.Repeat("x\n", 1<<20) // an error for each line
	_, err = m.Host().OSRelease()
	assert.ErrorContains(t, err, "/etc/os-release is larger than 65536 bytes", "a file of 2 MiB")
}

// TestKubeProxy reads kube-proxy's configuration from every place and in every form, for the fact and for the checks alike.
func TestKubeProxy(t *testing.T) {
	const volumes = "/var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap"
	const volume, eks = volumes + "/kube-proxy/config.conf", volumes + "/config/config"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  config.KubeProxy
		known bool // whether the fact is known
	}{
		{"nothing", nil, config.KubeProxy{Mode: "iptables", MaxPerCore: 32768, Min: 131072, MinSync: time.Second}, false},
		{"kubeadm", map[string]string{
			volume: "kind: KubeProxyConfiguration\nmode: \"ipvs\"\nipvs:\n  minSyncPeriod: 7s\nconntrack:\n  maxPerCore: 0\n"},
			config.KubeProxy{From: volume, Mode: "ipvs", Min: 131072, MinSync: 7 * time.Second}, true},
		{"EKS", map[string]string{eks: "kind: KubeProxyConfiguration\nmode: nftables\n", "/var/log/pods/kube-system_kube-proxy-x_6b1a/x": ""},
			config.KubeProxy{From: eks, Mode: "nftables", MaxPerCore: 32768, Min: 131072, MinSync: time.Second}, true},
		{"another program's Pod, and a Pod that gives its volume the same name", map[string]string{
			volume: "kind: KubeProxyConfiguration\nmode: ipvs\n", "/var/log/pods/shop_kube-proxy-x_6b1a/x": "",
			strings.Replace(eks, "6b1a", "7c2b", 1): "mode: ipvs\n"},
			config.KubeProxy{Mode: "iptables", MaxPerCore: 32768, Min: 131072, MinSync: time.Second}, false},
		{"kops in IPVS mode", map[string]string{
			"/etc/kubernetes/manifests/kube-proxy.manifest": "- --proxy-mode=ipvs\n- --ipvs-min-sync-period=6s\n"},
			config.KubeProxy{From: "/etc/kubernetes/manifests/kube-proxy.manifest", Mode: "ipvs", MaxPerCore: 32768, Min: 131072,
				MinSync: 6 * time.Second}, true},
		{"kops", map[string]string{"/etc/kubernetes/manifests/kube-proxy.manifest": "- --proxy-mode=nftables\n- --conntrack-min=\"7\"\n"},
			config.KubeProxy{From: "/etc/kubernetes/manifests/kube-proxy.manifest", Mode: "nftables", MaxPerCore: 32768, Min: 7,
				MinSync: time.Second}, true},
		{"a manifest that points at another file", map[string]string{
			"/etc/kubernetes/manifests/kube-proxy.yaml": "- --config=/var/lib/kube-proxy/config.yaml\n",
			"/var/lib/kube-proxy/config.yaml":           "kind: KubeProxyConfiguration\n",
		}, config.KubeProxy{From: "/var/lib/kube-proxy/config.yaml", Mode: "iptables", MaxPerCore: 32768, Min: 131072,
			MinSync: time.Second}, true},
	} {
		h := (&hosttest.Machine{Files: c.files}).Host()
		got, err := config.ReadKubeProxy(h.Files)
		assert.True(t, err == nil && reflect.DeepEqual(got, c.want), "%s: %+v, %v, want %+v", c.name, got, err, c.want)
		mode, known := h.Fact(t.Context(), "kube_proxy.mode")
		assert.True(t, known == c.known && (!known || mode == c.want.Mode), "%s: fact: %v, %t", c.name, mode, known)
	}
}

// TestSystemdVersion: /lib/systemd is searched too, and one unreadable directory does not hide another.
func TestSystemdVersion(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{"/lib/systemd/libsystemd-shared-241.so": ""}}
	v, file, err := m.Host().SystemdVersion()
	assert.True(t, v == 241 && file.Source == "/lib/systemd/libsystemd-shared-241.so" && err == nil, "%d, %v, %v", v, file, err)
	if v, known := m.Host().Fact(t.Context(), "systemd.version"); !known || v != int64(241) {
		t.Errorf("fact: %v, %t", v, known)
	}
	_, _, err = (&hosttest.Machine{}).Host().SystemdVersion()
	assert.True(t, err != nil, "a machine without systemd has a version")
}

// TestCloudWithoutDMI: a machine without DMI is in none of the clouds that DMI could name; a
// snapshot without a record of DMI leaves the fact unknown.
func TestCloudWithoutDMI(t *testing.T) {
	v, known := (&hosttest.Machine{}).Host().Fact(t.Context(), "cloud.provider")
	assert.True(t, known && v == "", "%v, %t", v, known)
	if v, known := host.Replay(&host.Snapshot{Root: "/"}).Fact(t.Context(), "cloud.provider"); known {
		t.Errorf("not recorded, but the fact is %v", v)
	}
}

// TestCloud: EC2's older types run on Xen, which is their vendor in DMI; another Xen is not a cloud. OpenStack's vendor is the packager.
func TestCloud(t *testing.T) {
	for _, c := range []struct{ vendor, product, bios, want string }{
		{"Amazon EC2", "m7i.large", "1.0", "aws"},
		{"Xen", "HVM domU", "4.11.amazon", "aws"},
		{"Xen", "HVM domU", "4.17.3", ""},
		{"OpenStack Foundation", "OpenStack Nova", "", "openstack"},
		{"Red Hat", "OpenStack Compute", "", "openstack"},
		{"Red Hat", "KVM", "", ""},
		{"Hetzner", "vServer", "", "hetzner"},
		{"QEMU", "Standard PC (Q35 + ICH9, 2009)", "", ""},
	} {
		m := &hosttest.Machine{Files: map[string]string{
			"/sys/class/dmi/id/sys_vendor": c.vendor + "\n", "/sys/class/dmi/id/product_name": c.product + "\n",
			"/sys/class/dmi/id/bios_version": c.bios + "\n",
		}}
		v, known := m.Host().Fact(t.Context(), "cloud.provider")
		assert.True(t, known && v == c.want, "%s, %s: %v, %t, want %q", c.vendor, c.bios, v, known, c.want)
	}
}
