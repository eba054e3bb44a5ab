package kubelet_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestKubeconfig(t *testing.T) {
	const file, ok = "/etc/kubernetes/kubelet.conf", "a kubeconfig with which kubelet starts"
	const good = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\"}}]\nusers: [{name: u, user: {token: secret}}]\n"
	const right = "\npass\nwant: " + ok + "\ngot: " + ok
	change := func(old, new string) *hosttest.Machine {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the kubeconfig", old)
		}
		return late("--kubeconfig="+file, "", map[string]string{file: strings.Replace(good, old, new, 1), "/etc/kubernetes/pki/ca.crt": "x",
			"/usr/bin/aws": ""})
	}
	faulty := func(verdict, got string) string {
		return "\n" + verdict + "\nwant: " + ok + "\ngot: " + got + "\nevidence: " + file + ": " + got + "\nremedy: correct the kubeconfig, or join " +
			"the node again"
	}
	const exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}"
	var cases []checkstest.Case
	for _, c := range []struct{ what, old, new, got string }{
		{"good", "x", "x", ""},
		{"no context", "current-context: x", "current-context: y", `current-context names context "y", which does not exist`},
		{"no current context", "current-context: x\n", "", "current-context is not set, or its context names no cluster"},
		{"no cluster", "cluster: c", "cluster: d", `the context names cluster "d", which does not exist`},
		{"no server", "https://10.0.0.1:6443", "", `cluster "c" has no server`},
		{"a server that is no URL", "https://10.0.0.1:6443", "a/b", `the server of cluster "c" is neither a URL nor host:port`},
		{"a server without a scheme", "https://10.0.0.1:6443", "10.0.0.1:6443", ""},
		{"no authority", "{server:", "{certificate-authority: pki/none.crt, server:",
			"certificate-authority /etc/kubernetes/pki/none.crt does not exist"},
		{"an authority without a certificate", "{server:", "{certificate-authority: pki/ca.crt, server:",
			"/etc/kubernetes/pki/ca.crt contains no PEM certificate"},
		{"two authorities", "{server:", "{certificate-authority: pki/ca.crt, certificate-authority-data: eA==, server:",
			`cluster "c" has both certificate-authority and certificate-authority-data`},
		{"an authority that is not used", "{server:", "{certificate-authority: pki/ca.crt, insecure-skip-tls-verify: true, server:",
			`cluster "c" has both a certificate authority and insecure-skip-tls-verify`},
		{"no token file", "token: secret", "tokenFile: token", "tokenFile /etc/kubernetes/token does not exist"},
		{"no key", "token: secret", "client-certificate: pki/ca.crt", `user "u" has a certificate and no client-key`},
		{"no key file", "token: secret", "client-certificate: pki/ca.crt, client-key: /none.key", "client-key /none.key does not exist"},
		{"a token and a password", "token: secret", "token: secret, password: secret", `user "u" has both a token and a password`},
		{"a plugin", "token: secret", exec, ""},
		{"a plugin without a mode", "token: secret", strings.Replace(exec, ", interactiveMode: Never", "", 1),
			`exec of user "u" has no interactiveMode`},
		{"a plugin of another version", "token: secret", strings.Replace(exec, "/v1", "/v2", 1), `exec of user "u" has apiVersion ` +
			`"client.authentication.k8s.io/v2"; known versions: client.authentication.k8s.io/v1 and v1beta1`},
	} {
		want := right
		if c.got != "" {
			want = faulty("fail", c.got)
		}
		cases = append(cases, checkstest.Case{What: c.what, Node: change(c.old, c.new), Want: want})
	}
	both := "--kubeconfig=" + file + " --bootstrap-kubeconfig=/etc/kubernetes/bootstrap.conf"
	cases = append(cases, []checkstest.Case{
		{What: "no user", Node: change("user: u", "user: v"), Want: faulty("warn", `the context names user "v", which does not exist`)},
		{What: "no program", Node: change("token: secret", strings.Replace(exec, "aws", "none", 1)),
			Want: faulty("warn", "the credential plugin none does not exist")},
		{What: "missing", Node: late("--kubeconfig="+file, "", nil),
			Want: "skipped\nskipped: " + file + " is missing or empty, see kubelet.certificate"},
		{What: "missing, with a bootstrap kubeconfig", Node: late(both, "", map[string]string{"/etc/kubernetes/bootstrap.conf": good}), Want: right},
		{What: "both useless", Node: late(both, "", map[string]string{file: "", "/etc/kubernetes/bootstrap.conf": strings.Replace(good, "t: x", "t: y", 1)}),
			Want: strings.ReplaceAll(faulty("fail", `current-context names context "y", which does not exist`), file, "/etc/kubernetes/bootstrap.conf")},
		{What: "no kubeconfig, and the defaults", Node: late("", "", nil), Want: `
fail
want: a kubeconfig with which kubelet starts
got: no --kubeconfig, but authentication.webhook.enabled and authorization.mode Webhook
evidence: /var/lib/kubelet/config.yaml: does not set authentication.webhook.enabled, which is the default
evidence: /var/lib/kubelet/config.yaml: does not set authorization.mode Webhook, which is the default
remedy: find out why --kubeconfig is not on kubelet's command line (` + "`systemctl cat kubelet`" +
			"); an Environment= value that continues on the next line needs a backslash"},
		{What: "standalone", Node: late("", "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n", nil), Want: right},
	}...)
	checkstest.RunOne(t, "kubelet.kubeconfig", checks.Boot, cases)
}

// TestAPI queries a real server over TLS.
func TestAPI(t *testing.T) {
	status, asked := http.StatusCreated, ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"status": {"userInfo": {"username": "system:node:n1"}}}`))
	}))
	defer server.Close()
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	name := filepath.Join(t.TempDir(), "kubelet.conf")
	inspect := func(cluster string) checks.Result {
		text := "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: secret}}]\n" +
			"clusters: [{name: c, cluster: {" + cluster + "}}]\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		asked = ""
		h := late("--kubeconfig="+name, "", map[string]string{name: text}).Host()
		h.Prove = func(context.Context, time.Duration) (host.Proof, error) { return host.Proof{}, nil } // packets can be sent
		return checkstest.On(t.Context(), t, h, checks.Boot, "kubelet.api", "")
	}
	trusted := "server: \"" + server.URL + "\", certificate-authority-data: " + authority
	for _, c := range []struct {
		what, cluster, want string
		status              int
		sends               bool
	}{
		{"accepted", trusted, "pass", http.StatusCreated, true},
		{"an old API server", trusted, "pass", http.StatusNotFound, true},
		{"refused", trusted, "fail", http.StatusUnauthorized, true},
		{"starting", trusted, "unknown", http.StatusServiceUnavailable, true},
		{"another authority", "server: \"" + server.URL + "\"", "fail", http.StatusCreated, false},
		{"not verified", "server: \"" + server.URL + "\", insecure-skip-tls-verify: true", "skipped", http.StatusCreated, false},
		{"no TLS", "server: \"http://127.0.0.1:1\"", "unknown", http.StatusCreated, false},
		{"no answer", "server: \"https://127.0.0.1:1\"", "unknown", http.StatusCreated, false},
	} {
		status = c.status
		if r := inspect(c.cluster); r.Verdict.String() != c.want || (asked != "") != c.sends {
			t.Errorf("%s: %v (%v), want %s; the server got %q", c.what, r.Verdict, r.Err, c.want, asked)
		}
	}
	h := late("--kubeconfig="+name, "", map[string]string{name: "x"}).Host()
	h.Prove = nil
	if r := checkstest.On(t.Context(), t, h, checks.Boot, "kubelet.api", ""); r.Verdict.String() != "skipped" {
		t.Errorf("without a network: %v", r.Verdict)
	}
}
