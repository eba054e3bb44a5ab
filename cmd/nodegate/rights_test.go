package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// bySystemd are the restrictions of the units that only systemd can make: filters of system calls, control groups, IP filters. The
// scenarios of internal/e2e/vm run the units with them.
const bySystemd = "Type ExecStart ExecReload WatchdogSec Restart RestartSec TimeoutStartSec RemainAfterExit MemoryMax TasksMax OOMScoreAdjust " +
	"RuntimeDirectory RuntimeDirectoryPreserve IPAddressDeny IPAddressAllow SystemCallFilter SystemCallArchitectures SystemCallErrorNumber " +
	"RestrictAddressFamilies RestrictNamespaces RestrictRealtime RestrictSUIDSGID LockPersonality MemoryDenyWriteExecute RemoveIPC KeyringMode"

// restricted returns commands of sh that restrict the process as a directive of a unit does, and options of setpriv for the rest.
func restricted(directive, value string) (commands, options string, known bool) {
	const hide = "mount -t tmpfs -o mode=0 tmpfs "
	switch {
	case directive == "CapabilityBoundingSet":
		options = "--inh-caps=-all --bounding-set=-all"
		for name := range strings.FieldsSeq(strings.ToLower(value)) {
			options += ",+" + strings.TrimPrefix(name, "cap_")
		}
	case directive == "NoNewPrivileges":
		options = "--no-new-privs"
	case directive == "LimitNOFILE":
		commands = "ulimit -n " + value
	case directive == "LimitAS":
		commands = "ulimit -v " + strings.Replace(value, "infinity", "unlimited", 1)
	case directive == "UMask":
		commands = "umask " + value
	case directive == "ProtectSystem" && value == "strict":
		commands = `for m in $(awk '$5 !~ "^/(dev|proc|run|sys)(/|$)" {print $5}' /proc/self/mountinfo); do mount -o remount,bind,ro $m; done`
	case directive == "ProtectHome" && value == "yes":
		commands = hide + "/home; " + hide + "/root"
	case directive == "PrivateTmp" && value == "yes":
		commands = "mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /var/tmp"
	case directive == "PrivateDevices" && value == "yes":
		commands = `mkdir /run/dev; mount -t tmpfs tmpfs /run/dev; for d in null zero full random urandom tty; do cp -a /dev/$d /run/dev; done
			mount --move /run/dev /dev`
	case directive == "ProtectControlGroups" && value == "yes":
		commands = "mount -o remount,ro,bind /sys/fs/cgroup || true"
	case directive == "ProtectKernelLogs" && value == "yes":
		commands = "mount --bind /dev/null /proc/kmsg"
	case directive == "ProtectHostname" && value == "yes": // the namespace of unshare below
	default:
		return "", "", slices.Contains(strings.Fields(bySystemd), directive)
	}
	return commands, options, true
}

// rights is how a unit or a container runs nodegate.
type rights struct{ name, commands, options string }

// unitRights returns the rights of each service that install writes or a package carries, and of the DaemonSet's containers.
func unitRights(t *testing.T) []rights {
	p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte("audit {}\n")}}, policy.Options{})
	require.True(t, !diags.HasErrors(), "%v", diags)
	installed, err := units.Files(p, nil, units.Copied([]byte("nodegate")))
	require.NoError(t, err)
	var all []rights
	for _, from := range []struct {
		name  string
		files []units.File
	}{{"installed", installed}, {"packaged", units.ForPackage()}} {
		services := map[string]rights{}
		for _, f := range from.files {
			name := regexp.MustCompile(`nodegate-\w+\.service`).FindString(strings.TrimPrefix(f.Path, "/etc/systemd/system/multi-user.target.wants"))
			if f.Content == nil || name == "" {
				continue
			}
			r := services[name]
			options, err := unit.DeserializeOptions(strings.NewReader(string(f.Content)))
			require.NoError(t, err)
			for _, o := range options {
				commands, options, known := restricted(o.Name, o.Value)
				assert.True(t, o.Section != "Service" || known,
					"%s: %s=%s is neither applied here nor among those that only systemd can apply", f.Path, o.Name, o.Value)
				if o.Section == "Service" {
					r.commands += commands + "\n"
					r.options += " " + options
				}
			}
			services[name] = r
		}
		if names := slices.Sorted(maps.Keys(services)); !slices.Equal(names, []string{units.ApplyUnit, units.WatchUnit}) {
			t.Errorf("%s: %q; add what is new to this test", from.name, names)
		}
		for name, r := range services {
			assert.Contains(t, r.options, "--bounding-set=", "%s %s", from.name, name)
			if r.name = from.name + " " + name; !slices.ContainsFunc(all, func(o rights) bool { return o.commands+o.options == r.commands+r.options }) {
				all = append(all, r)
			}
		}
	}
	manifest := require.ReadFile(t, "../../images/export/daemonset.yaml")
	for _, m := range regexp.MustCompile(`(?s)- name: (\w+)\n {8}image:.*?securityContext:\n(.*?)\n {8}\w`).FindAllStringSubmatch(string(manifest), -1) {
		r := rights{name: "container " + m[1], options: "--clear-groups"}
		for line := range strings.SplitSeq(m[2], "\n") {
			switch key, value, _ := strings.Cut(strings.TrimSpace(line), ": "); key {
			case "runAsUser":
				r.options += " --reuid=" + value
			case "runAsGroup":
				r.options += " --regid=" + value
			case "capabilities":
				assert.Equal(t, value, "{drop: [ALL]}", "%s", r.name)
				r.options += " --inh-caps=-all --bounding-set=-all"
			case "allowPrivilegeEscalation":
				assert.Equal(t, value, "false", "%s", r.name)
				r.options += " --no-new-privs"
			case "readOnlyRootFilesystem":
				r.commands, _, _ = restricted("ProtectSystem", "strict")
			case "privileged", "runAsNonRoot", "seccompProfile", "seLinuxOptions":
			default:
				t.Errorf("%s: %s is not applied here", r.name, key)
			}
		}
		all = append(all, r)
	}
	return all
}

// inRights runs nodegate with a unit's restrictions, from a copy in /run of what it needs.
const inRights = `set -eu
mount -t tmpfs -o mode=755 tmpfs /run
cp -r "$1" /run/t; cp "$2" /run/t/nodegate; chmod -R a+rX /run/t; mkdir /run/nodegate; cd /run/t
exec 3>&1 >&2
%s
exec >&3
setpriv %s sh -c "$3"`

// verdicts returns the verdicts of a command that prints a report, by check.
func (w *world) verdicts(t *testing.T, r rights, command string) map[string]string {
	t.Helper()
	nodegate, err := exec.LookPath("nodegate")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c",
		fmt.Sprintf(inRights, r.commands, r.options), "sh", w.dir, nodegate, command)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.ExitCode() == exitUnknown && len(out) == 0 {
		return map[string]string{"": "unknown"}
	}
	var doc struct {
		Report  json.RawMessage
		Results []struct{ Name, Verdict, Error string }
	}
	err = json.Unmarshal(out, &doc)
	if err == nil && doc.Report != nil {
		err = json.Unmarshal(doc.Report, &doc)
	}
	require.True(t, err == nil && len(doc.Results) != 0, "%s, %s: %v %.2000s %.2000s", r.name, command, err, out, &stderr)
	found := map[string]string{}
	for _, v := range doc.Results {
		if slices.Contains([]string{"unknown", "fail"}, found[v.Name]) {
			continue
		}
		if found[v.Name] = v.Verdict; v.Error != "" {
			w.errors[r.name+" "+v.Name] = v.Error
		}
	}
	return found
}

// world is a node in this network namespace: kube-proxy with its rules, kubelet, containerd and the API server.
type world struct {
	dir    string
	errors map[string]string
}

func newWorld(t *testing.T) *world {
	const recorded = "../../internal/audit/proxy/testdata/"
	w := &world{t.TempDir(), map[string]string{}}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644))
	}
	read := func(name string) string {
		text := require.ReadFile(t, recorded+name)
		return string(text)
	}
	api := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") != "":
			rw.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/services"):
			fmt.Fprint(rw, read("services.json"))
		case strings.HasSuffix(r.URL.Path, "/endpointslices"):
			fmt.Fprint(rw, read("endpointslices.json"))
		default:
			fmt.Fprint(rw, `{"metadata": {"name": "node0"}, "items": []}`)
		}
	}))
	t.Cleanup(api.CloseClientConnections)
	write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})))
	write("kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters:\n"+
		"- {name: c, cluster: {server: \""+api.URL+"\", certificate-authority: ca.pem}}\nusers: [{name: u, user: {token: a}}]\n")
	all := "audit {\n  kubeconfig = \"/run/t/kubeconfig\"\n  node = \"node0\"\n}\nmodule \"overlay\" {}\nsysctl \"net.ipv4.ip_forward\" { value = 0 }\n"
	for _, p := range catalog.Problems() {
		all += fmt.Sprintf("check %q {}\n", p.Name)
	}
	write("p.hcl", all)
	write("rules", regexp.MustCompile(` -m nfacct --nfacct-name  *\w*`).ReplaceAllString(read("iptables-save.txt"), ""))
	out, err := exec.Command("sh", "-c", "ip link set lo up && iptables-nft-restore <"+w.dir+"/rules").CombinedOutput()
	require.True(t, err == nil, "%v %s", err, out)
	w.start(t, "kube-proxy", "127.0.0.1:10256", "0.0.0.0:30982") // with the health check node port of prod/lb-local
	w.start(t, "kubelet", "0.0.0.0:10250", "127.0.0.1:10248")
	w.start(t, "containerd")
	return w
}

// start starts a program of that name, which listens.
func (w *world) start(t *testing.T, name string, listen ...string) {
	listener, err := exec.LookPath("kube-proxy")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), name)
	text := require.ReadFile(t, listener)
	require.NoError(t, os.WriteFile(program, text, 0o755))
	cmd := exec.Command(program, listen...)
	if name != "kube-proxy" {
		cmd.Args[0] = "listener"
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
}

// TestRights: with the rights of each unit and container, each check of stage run, the audit, and watch's round have root's verdict.
func TestRights(t *testing.T) {
	for _, program := range []string{"unshare", "setpriv", "ip", "iptables-nft-restore"} {
		hosttest.NeedProgram(t, program)
	}
	t.Parallel()
	if !hosttest.OwnNetns(t) {
		return
	}
	w := newWorld(t)
	time.Sleep(31 * time.Second) // kubelet must have run for that long
	for _, command := range []string{
		"./nodegate check --stage run --format json --policy p.hcl",
		"./nodegate audit --kubeconfig kubeconfig --node node0 --format json",
		// One comparison, and the round that reports it.
		`./nodegate watch --interval 1s --policy p.hcl >&2 & for i in $(seq 300); do sleep .2
			grep -qsz '"kubeproxy.audit",[^}]*"verdict": *"\(pass\|fail\)"' /run/nodegate/watch.json && break; done
			cat /run/nodegate/watch.json; kill $!; wait`,
	} {
		for _, r := range unitRights(t) {
			inContainer := strings.HasPrefix(r.name, "container ")
			if inContainer && strings.Contains(command, "watch") {
				continue // a container only publishes what watch writes
			}
			var differ []string
			for range 3 { // another program may change the machine's parameters between two runs
				differ = nil
				root := w.verdicts(t, rights{name: "root", options: "--"}, command)
				for name, verdict := range w.verdicts(t, r, command) {
					why := w.errors[r.name+" "+name]
					// A container has no capability at all: rules, and the owners of ports, cannot be read.
					denied := name == "" || strings.Contains(why, "not permitted") || strings.Contains(why, "is not visible") || strings.Contains(why, "denied")
					if verdict != root[name] && (!inContainer || verdict != "unknown" || !denied) {
						differ = append(differ, fmt.Sprintf("%s is %s, root's is %s; %s", name, verdict, root[name], why))
					}
				}
				if differ == nil {
					break
				}
			}
			assert.True(t, differ == nil, "%.20s with the rights of %s:\n%s", command, r.name, strings.Join(differ, "\n"))
		}
	}
}
