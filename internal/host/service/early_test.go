package service_test

import (
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/service"
	"nodegate/internal/require"
)

const gateLine = "ExecStartPre=+/usr/local/bin/nodegate gate\n"

func readUnit(t *testing.T, files map[string]string) service.Unit {
	t.Helper()
	h := (&hosttest.Machine{Files: files}).Host()
	u, err := service.Read(h.Files, "kubelet.service")
	require.NoError(t, err)
	return u
}

// TestBeforeGate: a command before the gate that leaves a container running is found, in the forms of real units. A command
// that ends before the gate is not.
func TestBeforeGate(t *testing.T) {
	const container = "starts a container in the background"
	for line, want := range map[string]string{
		"/usr/bin/docker run -d --name kubelet image kubelet":                           container,
		"-/usr/bin/docker run --name kubelet -dit image":                                container,
		"/usr/bin/podman --log-level info run --replace -v /a:/b --detach=true image x": container,
		"/usr/bin/nerdctl -n k8s.io run -d image":                                       container,
		"/usr/bin/ctr -n k8s.io run -d docker.io/x kubelet":                             container,

		"/usr/bin/docker run --rm -v /opt/bin:/opt/bin:rw hyperkube cp /hyperkube /opt/bin/": "",
		"/usr/bin/docker run --rm image ls -d /x":                                            "",
		"-/usr/bin/docker rm -f kubelet":                                                     "",
		"/usr/bin/docker pull image":                                                         "",
		"/usr/bin/docker start --attach init":                                                "",
		"/bin/mount --make-shared /var/lib/kubelet":                                          "",
		"/opt/up.sh": "",
	} {
		files := map[string]string{
			"/etc/systemd/system/kubelet.service":                      "[Service]\nExecStartPre=" + line + "\nExecStart=/usr/bin/kubelet\n",
			"/etc/systemd/system/kubelet.service.d/10-nodegate.conf":   "[Service]\n" + gateLine,
			"/etc/systemd/system/kubelet.service.d/20-after-gate.conf": "[Service]\nExecStartPre=/usr/bin/docker run -d after\n",
		}
		u := readUnit(t, files)
		early, gated := u.BeforeGate()
		got := ""
		for _, e := range early {
			got += e.What
			assert.Equal(t, e.Entry.At(), "/etc/systemd/system/kubelet.service:2", "%s: at", line)
		}
		assert.True(t, got == want && gated, "%s: %q, %t; want %q", line, got, gated, want)
	}
}

// TestGateFirst: the unit's own line does not precede a gate that a drop-in puts first.
func TestGateFirst(t *testing.T) {
	const own = "ExecStartPre=/usr/bin/docker run -d --name kubelet image\n"
	u := readUnit(t, map[string]string{
		"/etc/systemd/system/kubelet.service":                    "[Service]\n" + own + "ExecCondition=/bin/true\n",
		"/etc/systemd/system/kubelet.service.d/10-nodegate.conf": "[Service]\n" + gateLine,
		"/etc/systemd/system/kubelet.service.d/20-first.conf":    "[Service]\nExecStartPre=\n" + gateLine + own,
	})
	early, gated := u.BeforeGate()
	assert.True(t, early == nil && gated, "%v, %t", early, gated)
}
