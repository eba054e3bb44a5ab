package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/kube"
	"nodegate/internal/require"
)

// canaries returns a text with canaries in place of each @, and counts them.
func (t *secretsTest) canaries(text string) string {
	planted, n := hosttest.WithCanaries(text)
	t.planted += n
	return planted
}

// plantServers plants the answers of an API server, of kube-proxy's pages and log, and of a
// credential plugin, and the credentials in a kubeconfig.
func (t *secretsTest) plantServers() {
	t.Helper()
	var status int
	var body, reads string
	var wrote bytes.Buffer
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			_, _ = wrote.ReadFrom(r.Body)
		}
		if r.Method == http.MethodGet && reads != "" {
			fmt.Fprint(w, reads)
			return
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	s.Config.ErrorLog = nil
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	kubeconfig := func(user string) string {
		name := filepath.Join(t.TempDir(), "kubeconfig")
		text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters:\n- name: c\n" +
			"  cluster: {server: \"" + s.URL + t.canaries("/?token=@") + "\", certificate-authority-data: " + authority + "}\nusers:\n- name: u\n  user: " + t.canaries(user) + "\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const plugin = `{exec: {apiVersion: client.authentication.k8s.io/v1, command: %s, args: ["@"], env: [{name: T, value: "@"}], interactiveMode: Never}}`
	script := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho "+t.canaries("@; echo @ >&2; exit 3")+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const node = `{"status": {"conditions": [{"type": "Other", "message": "@"}]}, "metadata": {"annotations": {"a": "@"}}}`
	for _, user := range []string{
		`{token: "@", username: "@", password: "@"}`, `{token: ["@"]}`, `{client-certificate-data: "@", client-key-data: "@"}`, `{auth-provider: {config: {x: "@"}}}`,
		fmt.Sprintf(plugin, script),
	} {
		name := kubeconfig(user)
		for _, c := range []struct {
			status      int
			body, reads string
		}{
			{401, `{"message": "@"}`, ""}, {403, `{"message": "forbidden: User \"@\" cannot list @"}`, ""}, {404, "@", ""}, {500, `{"message": "@"}`, ""}, {200, `["@"]`, ""},
			{200, `"@"`, ""}, {200, `{"items": ["@"]}`, ""}, {200, `{"items": "@"`, ""}, {200, `{"items": [{"spec": "@"}]}`, ""}, {200, "{}", node}, {422, `{"message": "@"}`, node},
		} {
			status, body, reads = c.status, t.canaries(c.body), t.canaries(c.reads)
			t.askAPI(name)
			t.search("an API server", "what publish writes", wrote.String())
		}
	}
	for _, page := range []string{
		"@", `{"lastUpdated": "@", "currentTime": "@"}`, `{"status": {"@": {"healthy": false}}, "healthy": "@"}`, `{"lastUpdated": ["@"]}`,
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"@\"} 1\n", "kubeproxy_sync_proxy_rules_last_timestamp_seconds @\n",
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{@ 1\n",
		strings.Repeat("E1126 10:00:00.000000 1 reflector.go:150] k8s.io/client-go/informers/factory.go:160: Failed to watch *v1.EndpointSlice: "+
			"failed to list *v1.EndpointSlice: Get \"https://u:@/x?token=@\": @\n", 9),
	} {
		t.askProxy(t.canaries(page))
	}
}

// askAPI lists and publishes with a kubeconfig.
func (t *secretsTest) askAPI(kubeconfig string) {
	t.Helper()
	plugins := kube.NewPlugins(host.Credential)
	api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig, Plugins: plugins}}.Server()
	if err == nil {
		_, err = api.List(t.Context(), false)
		api.Close()
	}
	if err != nil {
		f := kubeproxy.Unanswered(err)
		t.search("an API server", "audit's error", err.Error()+fmt.Sprint(f))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	p := kube.NewPublisher(host.Credential, func(line string) {
		t.search("an API server", "journal of watch", line)
		cancel()
	})
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	p.Set(kube.Publication{Condition: kube.Condition{Type: "Ready", Status: "True", Reason: "Passed", Message: "passes"}, Kubeconfig: kubeconfig, Node: "n"})
	select {
	case <-done:
	case <-time.After(200 * time.Millisecond): // it was published
		cancel()
		<-done
	}
}

// askProxy judges a page of kube-proxy, with a secret.
func (t *secretsTest) askProxy(page string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }))
	defer s.Close()
	var skipped strings.Builder
	asked := (&kubeproxy.Presence{Healthz: s.URL, Metrics: s.URL}).Ask(t.Context(), func(err error) { fmt.Fprintln(&skipped, err) })
	rep := proxy.Judgment{Findings: asked.Findings}
	r := secretsRun{t: t, where: "kube-proxy's page"}
	t.search(r.where, "audit's standard error", skipped.String())
	r.reports("audit as ", report.NewAudit(secretsNode(t.T).Host(), &rep, audit.Covered{Health: true}, time.Now()))
	r.search("audit text", func(b *bytes.Buffer) error { return report.AuditSummary(b, &rep, true) })
}

// plantMachine runs the real binary on a file tree with all planted files, and in namespaces with these
// files and with programs that fail.
func (t *secretsTest) plantMachine(places []hosttest.Place) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	m := secretsNode(t.T)
	for _, place := range places {
		if _, exists := m.Files[place.Name]; !exists || place.What != "file" || strings.HasPrefix(place.Name, "/proc/") ||
			strings.HasPrefix(place.Name, "/sys/") {
			continue
		}
		c := hosttest.Canaries{Place: place}
		text, err := c.Text(m, place.Name)
		if err != nil {
			continue
		}
		t.planted += c.Planted()
		write(dir+"/tree"+place.Name, text, 0o600)
	}
	write(dir+"/policy.hcl", t.canaries(strings.ReplaceAll(secretsPolicy(), policyCanary, "@")), 0o644)
	write(dir+"/held.hcl", t.canaries("gate {\n  budget = \"1s\"\n  on_held = [\"/bin/sh\", \"-c\", \"cat >held; echo @ >&2; exit 7\", \"--token=@\"]\n}\n"+
		"module \"nodegate_absent\" {}\ncheck \"kubelet.values\" {}\ncheck \"kubelet.config\" {}\ncheck \"packetfilter.kernel-can\" {}\n"), 0o644)
	for _, name := range []string{"iptables", "ip6tables", "iptables-save", "iptables-nft-save", "iptables-legacy-save", "ip6tables-nft-save", "ip6tables-legacy-save",
		"iptables-restore", "ip6tables-restore", "nft", "modprobe", "systemctl", "journalctl"} {
		write(dir+"/bin/"+name, t.canaries("#!/bin/sh\necho @\necho \"Error: @: \\`@' https://u:@/?token=@\" >&2\nexit 1\n"), 0o755)
	}
	write(dir+"/tree/usr/bin/kubelet", t.canaries("#!/bin/sh\n[ \"$1\" = --version ] && echo Kubernetes v1.35.0 @ && exit\n"+
		"echo 'E1 run.go:72] \"command failed\" err=\"failed to load kubelet config file, path: /x, error: @ \\\"@\\\" https://@\"' >&2\nexit 1\n"), 0o755)
	tree := func(policy string, calls ...string) (out string) {
		t.Helper()
		for _, args := range calls {
			words := append(strings.Fields(args), "--root", dir+"/tree")
			if policy != "" {
				words = append(words, "--policy", policy)
			}
			cmd := exec.CommandContext(t.Context(), "nodegate", words...)
			text, _ := cmd.CombinedOutput() // the node fails
			out = string(text)
			t.exits("a file tree", args, cmd.ProcessState.ExitCode(), out)
			if policy != "" {
				t.search("a file tree", "nodegate "+args, out)
			}
		}
		return out
	}
	tree(dir+"/policy.hcl", "check -f text -v", "check -f json", "check -f junit", "check -f prometheus", "plan", "snapshot",
		"snapshot --show")
	for _, stage := range []string{"image", "boot", "run", "all"} {
		for verb, want := range map[string]string{"snapshot": `"kind": "Snapshot"`, "check -f json": `"results": \[`, "plan": "wants|unknown"} {
			if out := tree(dir+"/policy.hcl", verb+" --stage "+stage); !regexp.MustCompile(want).MatchString(out) || strings.Contains(out, "goroutine") {
				t.Errorf("%s --stage %s of a tree: %.500s", verb, stage, out)
			}
		}
	}
	// The policy is the only file that a snapshot holds whole, and --show reports it.
	write(dir+"/tree/etc/nodegate/policy.d/50-a.hcl", t.canaries("variable \"a\" { default = \"@\" }\ncheck \"swap\" {}\n"), 0o644)
	if out := tree("", "snapshot"); len(hosttest.Canary().FindAllString(out, -1)) != 1 {
		t.Errorf("a snapshot of an installed policy: %.500s", out)
	}
	if out := tree("", "snapshot --show"); !strings.Contains(out, "/etc/nodegate/policy.d/50-a.hcl (whole, with any secret in it)") || hosttest.Canary().MatchString(out) {
		t.Errorf("--show does not report the whole policy: %s", out)
	}
	if err := os.RemoveAll(dir + "/tree/etc/nodegate"); err != nil {
		t.Fatal(err)
	}
	if hosttest.Namespaces() != nil || os.Getuid() != 0 {
		t.Log("without root, no program of the machine was planted")
		return
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", inNamespaces, "sh", dir)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "nodegate: held by") {
		t.Errorf("%v: %.2000s", err, out)
	}
	verbs := 0
	for part := range strings.SplitSeq(string(out), "\n=== ") {
		name, text, _ := strings.Cut(strings.TrimPrefix(part, "=== "), "\n")
		if call, is := strings.CutPrefix(name, "nodegate "); is {
			text, status, _ := strings.Cut(text, "\nexit status ")
			code, err := strconv.Atoi(strings.TrimSpace(status))
			require.NoError(t, err)
			t.exits("a machine", call, code, text)
			verbs++
		}
		t.search("a machine", name, text)
	}
	assert.Equal(t, verbs, 8, "the verbs that ran")
}

// exits fails if a verb did not end as it should: with a panic, without an output, or with another status.
func (t *secretsTest) exits(where, call string, code int, out string) {
	t.Helper()
	verb, _, _ := strings.Cut(call, " ")
	want := map[string][]int{"snapshot": {0}, "check": {1, exitUnknown}, "plan": {0, 1, exitUnknown}, "gate": {1}, "apply": {1, exitUnknown},
		"audit": {exitUnknown}, "watch": {0}}[verb]
	if !slices.Contains(want, code) || strings.Contains(out, "goroutine ") || strings.TrimSpace(out) == "" {
		t.Errorf("%s: nodegate %s: exit status %d, want %d: %.500s", where, call, code, want, out)
	}
}

// inNamespaces runs the verbs that need a running machine. An overlay shows the planted files.
const inNamespaces = `
scratch=$PWD
mount -t tmpfs tmpfs "$scratch" && cd "$scratch" || exit
for of in etc usr var/lib; do
	mkdir -p upper/$of work/$of "$1/tree/$of"
	cp -r "$1/tree/$of/." upper/$of/
	mount -t overlay overlay -o "lowerdir=/$of,upperdir=$scratch/upper/$of,workdir=$scratch/work/$of" /$of || exit
done
mount -t tmpfs tmpfs /run
mount --bind "$1/bin" /usr/local/sbin
[ ! -e /dev/console ] || { : >console; mount --bind console /dev/console; }
ip link set lo up
nodegate=$(command -v nodegate)
for call in "gate --budget 1s" "apply" "check -f json" "plan" "snapshot" "audit" "audit -f json"; do
	echo "=== nodegate $call"
	policy="--policy $1/held.hcl"
	case $call in audit*) policy="--timeout 5s" ;; esac
	timeout 60 "$nodegate" $call $policy 2>&1
	printf "\nexit status %d\n" $?
done
echo "=== nodegate watch"
timeout --preserve-status 6 "$nodegate" watch --policy "$1/held.hcl" --interval 1s --textfile "$scratch" 2>&1
printf "\nexit status %d\n" $?
for of in /run/nodegate/* "$scratch"/nodegate.prom "$scratch"/console "$scratch"/held; do
	echo "=== ${of##*/}"
	cat "$of" 2>/dev/null
done
true
`
