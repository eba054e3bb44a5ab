package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"nodegate":   main,
		"kube-proxy": kubeProxy,
		"listener":   kubeProxy,
	})
}

// kubeProxy is a healthy kube-proxy that does nothing. It listens on the addresses of its command line.
func kubeProxy() {
	at := os.Args[1:]
	if len(at) == 0 {
		at = []string{"127.0.0.1:10256"}
	}
	for _, address := range at {
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if address == "127.0.0.1:10248" { // kubelet's healthz
					fmt.Fprint(w, "ok")
					return
				}
				now := time.Now().Format(time.RFC3339)
				fmt.Fprintf(w, `{"lastUpdated": %q, "currentTime": %q, "healthy": true, "status": {"IPv4": {"lastUpdated": %q, "healthy": true}}}`,
					now, now, now)
			})))
		}()
	}
	select {}
}

// TestScripts runs the scripts of testdata. "replace FILE" replaces the script's working
// directory with $WORK in a file, so that outputs can be compared.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return hosttest.Namespaces() == nil && os.Getuid() == 0, nil
			case "pid-namespace":
				h, err := host.Open("/")
				if err != nil {
					return false, err
				}
				defer h.Close()
				return !h.SeesAllProcesses(), nil
			case "fuse":
				_, err := os.Stat("/dev/fuse")
				return err == nil, nil
			case "br_netfilter":
				_, err := os.Stat("/proc/sys/net/bridge")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(env *testscript.Env) error {
			fixtures, err := filepath.Abs("../../internal/audit/proxy/testdata")
			env.Setenv("FIXTURES", fixtures)
			return err
		},
		UpdateScripts: os.Getenv("UPDATE") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"bytes":        cmdBytes,
			"sed-duration": cmdDuration,
			"nowork": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, f := range args {
					text := strings.ReplaceAll(ts.ReadFile(f), ts.Getenv("WORK"), "$WORK")
					ts.Check(os.WriteFile(ts.MkAbs(f), []byte(text), 0o644))
				}
			},
		},
	})
}

// cmdDuration replaces the duration of a run in a file.
func cmdDuration(ts *testscript.TestScript, _ bool, args []string) {
	text := regexp.MustCompile(`, [0-9.]+(µs|ms|s)\)`).ReplaceAllString(ts.ReadFile(args[0]), ", TIME)")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// cmdBytes creates a file that a script cannot contain: bytes FILE large|latin1|binary.
func cmdBytes(ts *testscript.TestScript, _ bool, args []string) {
	content := map[string]string{
		"large":  "# " + strings.Repeat("x", 2<<20),
		"latin1": "module \"overlay\" {\n  reason = \"caf\xe9\"\n}\n",
		"binary": "\x7fELF\x02\x01\x01\x00\x00\xff\xfe",
	}[args[1]]
	if content == "" {
		ts.Fatalf("bytes: no content %q", args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(content), 0o644))
}
