package config

import (
	"testing"

	"nodegate/internal/assert"
)

// refusals are texts of programs that checks look for.
const refusals = `failed to parse kubelet flag: invalid argument; failed to set feature gates; failed to validate kubelet flags: invalid node labels;
failed to load kubelet config file; failed to merge kubelet configs; failed to precedence kubeletConfigFlag; initialize logging: ;
failed to validate kubelet configuration; failed to construct kubelet dependencies: Cipher suite; unknown tls version;
failed to merge global and in-flight KubeletConfiguration; not run on a host using cgroup v1; unable to acquire file lock on "/";
failed to parse kubelet flag: unknown flag: --network-plugin; unknown shorthand flag; RULE_APPEND failed (No such file or directory);
Error: cache initialization failed: Invalid argument; Error: syntax error, unexpected string; is not installed; Permission denied;
you must be root; Operation not permitted; can't initialize iptables table; Table does not exist (do you need to insmod?);
Perhaps iptables or your kernel needs to be upgraded; Extension comment revision 0 not supported, missing kernel module?;
Module overlay not found in directory /lib/modules/6.1.0; could not insert 'overlay': Unknown symbol in module; Key was rejected by service;
resource temporarily unavailable; Another app is currently holding the xtables lock; Device or resource busy; Exec format error;`

// TestPlainMessage: of a program's message only the words of messages remain, numbers, flags and paths.
func TestPlainMessage(t *testing.T) {
	for _, c := range []struct{ said, known, want string }{
		{`E1126 10:00:00.1 7 run.go:72] "command failed" err="failed to parse kubelet flag: invalid argument \"S3cret\" for \"--x\" flag"`, "",
			`E1126 10:00:00.1 7 run.go:72] "command failed" err="failed to parse kubelet flag: invalid argument \"(value left out)\" for \"--x\" flag"`},
		{"failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: yaml: unmarshal errors: line 5: cannot unmarshal !!str `S3cret` into int", "",
			"failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: yaml: unmarshal errors: line 5: cannot unmarshal !!str `(value left out)` into int"},
		{"unrecognized feature gate: S3cret", "", "unrecognized feature gate: (value left out)"},
		{"modprobe: FATAL: Module foo_x not found in directory /lib/modules/6.1.0", "modprobe -- foo_x",
			"modprobe: FATAL: Module foo_x not found in directory /lib/modules/6.1.0"},
		{"modprobe: ERROR: ../libkmod/libkmod-module.c:1047 command_do() Error running install command '/bin/false' for module dummy: retcode 1",
			"modprobe -- dummy",
			"modprobe: ERROR: ../libkmod/libkmod-module.c:1047 command_do() Error running install command '/bin/false' for module dummy: retcode 1"},
		{"modprobe: FATAL: Module foo_x not found", "", "modprobe: FATAL: Module (value left out) not found"},
		{"iptables v1.8.9 (nf_tables): Couldn't load match `S3cret':No such file or directory", "",
			"iptables v1.8.9 (nf_tables): Couldn't load match `(value left out)':No such file or directory"},
		{"dial tcp https://u:S3cret@h/x?token=S3cret S3 cret", "", "dial tcp (value left out)"},
		{"KubeletConfiguration.kubeReservedCgroup: strconv.ParseBool: parsing x5T", "", "KubeletConfiguration.kubeReservedCgroup: strconv.ParseBool: parsing (value left out)"},
		{`E1126 10:00:00.123456    7 a_b.go:1] "Failed to initialise Xyzzy" err="Xyzzy: FooBar" x="S3cret"`, "featureGates: {FooBar: true}",
			`E1126 10:00:00.123456    7 a_b.go:1] "Failed to initialise Xyzzy" err="(value left out): FooBar" x="(value left out)"`},
		{"", "", ""},
		{refusals, "", refusals},
	} {
		assert.Equal(t, PlainMessage(c.said, c.known), c.want, "%s", c.said)
	}
}

// TestPlainRules: of the text that a rule's author chose, known words remain, and kube-proxy's names of Services.
func TestPlainRules(t *testing.T) {
	for rule, want := range map[string]string{
		`-A INPUT -m comment --comment s3cret/hunter2 -j DROP`:                             `-A INPUT -m comment --comment "left-out" -j DROP`,
		`-A INPUT -m recent --set --name s3cret --rsource`:                                 `-A INPUT -m recent --set --name "left-out" --rsource`,
		`-A INPUT -m x --label s3cret -p tcp -m tcp --dport 443 -j ACCEPT`:                 `-A INPUT -m x --label "left-out" -p tcp -m tcp --dport 443 -j ACCEPT`,
		`-A KUBE-SVC-A -m comment --comment "ns/web:http cluster IP" -j KUBE-MARK-MASQ`:    "",
		`-A KUBE-SEP-A -m recent --set --name KUBE-SEP-A --mask 255.255.255.255 --rsource`: "",
		`-A INPUT -m set --match-set cali40s:x src -m conntrack --ctstate NEW -j DROP`:     "",
	} {
		if want == "" {
			want = rule
		}
		if got := PlainRules(rule + "\n"); got != want+"\n" {
			t.Errorf("%s\ngot  %swant %s", rule, got, want)
		}
	}
}
