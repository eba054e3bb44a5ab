package kubelet_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io/fs"
	"maps"
	"math/big"
	"strings"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestCertificate compares only the beginning of each text: the dates are relative to now.
func TestCertificate(t *testing.T) {
	now := time.Now()
	const (
		drop    = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
		current = "/var/lib/pki/kubelet-client-current.pem"
		rotates = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --rotate-certificates " +
			"--cert-dir=/var/lib/pki\n"
		inContext = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" +
			"clusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\"}}]\n"
	)
	for _, c := range []struct {
		what, want  string
		from, until time.Duration
		files       map[string]string
	}{
		{what: "no kubeconfig", files: map[string]string{drop: ""}},
		{what: "valid", from: -time.Hour, until: time.Hour, want: "pass: a valid client certificate"},
		{what: "beside the kubeconfig, by its name", from: -time.Hour, until: time.Hour, want: "pass: a valid client certificate",
			files: map[string]string{"/etc/kubernetes/kubelet.conf": inContext + "users: [{name: u, user: {client-certificate: client.crt}}]\n",
				"/etc/kubernetes/client.crt": certificate(t, now.Add(-time.Hour), now.Add(time.Hour))}},
		{what: "expired", from: -2 * time.Hour, until: -time.Hour, want: "warn: expired since "},
		{what: "expired, and kubelet starts with it", from: -2 * time.Hour, until: -time.Hour, want: "warn: expired since ",
			files: map[string]string{drop: "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf\n"}},
		{what: "the clock is behind", from: time.Hour, until: 2 * time.Hour, want: "warn: valid only from "},
		{what: "expired, and bootstrap", from: -2 * time.Hour, until: -time.Hour,
			files: map[string]string{"/etc/kubernetes/bootstrap-kubelet.conf": "x"}},
		{what: "missing", files: map[string]string{"/var/lib/kubelet/pki/kubelet.pem": "absent"}},
		{what: "expired in the kubeconfig, rotated since", from: -2 * time.Hour, until: -time.Hour,
			files: map[string]string{drop: rotates, current: certificate(t, now.Add(-time.Hour), now.Add(time.Hour))},
			want:  "pass: a valid client certificate"},
		{what: "rotated, and both expired", from: -3 * time.Hour, until: -2 * time.Hour,
			files: map[string]string{drop: rotates, current: certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))},
			want:  "warn: expired since " + now.Add(-2*time.Hour).UTC().Format("2006-01-02T15:04")},
		{what: "rotated, not valid yet", from: -2 * time.Hour, until: time.Hour,
			files: map[string]string{drop: rotates, current: certificate(t, now.Add(time.Hour), now.Add(2*time.Hour))},
			want:  "warn: valid only from "},
		{what: "rotated, and emptied by a power cut", from: -time.Hour, until: time.Hour, files: map[string]string{drop: rotates, current: ""},
			want: "pass: a valid client certificate"},
		{what: "damaged, and no bootstrap kubeconfig", files: map[string]string{"/var/lib/kubelet/pki/kubelet.pem": "x"}},
		{what: "a chain whose second certificate has expired", from: -time.Hour, until: time.Hour, files: map[string]string{
			"/var/lib/kubelet/pki/kubelet.pem": certificate(t, now.Add(-time.Hour), now.Add(time.Hour)) +
				certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))},
			want: "warn: expired since "},
		{what: "expired, and a rotated certificate that kubelet does not use", from: -2 * time.Hour, until: -time.Hour,
			files: map[string]string{"/var/lib/kubelet/pki/kubelet-client-current.pem": certificate(t, now.Add(-time.Hour), now.Add(time.Hour))},
			want:  "warn: expired since "},
		{what: "a token, but kubelet requires a certificate",
			files: map[string]string{"/etc/kubernetes/kubelet.conf": inContext + "users: [{name: u, user: {token: x}}]"}},
		{what: "a kubeconfig that a power cut emptied", files: map[string]string{"/etc/kubernetes/kubelet.conf": ""}},
		{what: "a context that does not exist",
			files: map[string]string{"/etc/kubernetes/kubelet.conf": "current-context: y\n" + inContext[len("current-context: x\n"):]}},
		{what: "a token, and no bootstrap", files: map[string]string{
			drop:                           "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf\n",
			"/etc/kubernetes/kubelet.conf": inContext + "users: [{name: u, user: {token: x}}]"}},
	} {
		files := map[string]string{
			drop: "[Service]\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf " +
				"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf\n",
			"/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n",
			"/etc/kubernetes/kubelet.conf":            inContext + "users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/kubelet.pem}}]\n",
			"/var/lib/kubelet/pki/kubelet.pem":        certificate(t, now.Add(c.from), now.Add(c.until)),
		}
		maps.Copy(files, c.files)
		if files["/var/lib/kubelet/pki/kubelet.pem"] == "absent" {
			delete(files, "/var/lib/kubelet/pki/kubelet.pem")
		}
		m := checkstest.Node(files, nil)
		m.Modes = map[string]fs.FileMode{"/etc/kubernetes/kubelet.conf": 0o600} // as kubeadm writes it
		r := checkstest.On(t.Context(), t, m.Host(), checks.Run, "kubelet.certificate-dates", "")
		got, want := r.Verdict.String(), cmp.Or(c.want, "skipped")
		if r.Verdict != verdict.Skipped {
			got += ": " + r.State.Got
		}
		if !strings.HasPrefix(got, want) || r.Err != nil || r.Differs() && r.State.Remedy == "" {
			t.Errorf("%s: %s (%v, remedy %q), want %s", c.what, got, r.Err, r.State.Remedy, want)
		}
		if strings.Contains(got, "expired since") && !strings.HasPrefix(r.State.Remedy, "replace /etc/kubernetes/kubelet.conf by the output, on a "+
			"control plane node, of `kubeadm kubeconfig user --org system:nodes --client-name ") {
			t.Errorf("%s: remedy %q", c.what, r.State.Remedy)
		}
	}
}

func certificate(t *testing.T, from, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:n1"}, NotBefore: from,
		NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}
