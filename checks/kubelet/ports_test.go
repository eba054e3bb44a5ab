package kubelet_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
)

func TestPorts(t *testing.T) {
	const title = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(port, state string) string {
		return "   0: 00000000:" + port + " 00000000:0000 " + state +
			" 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"
	}
	node := func(tcp, comm string) checkstest.Case {
		return checkstest.Case{Node: checkstest.Node(map[string]string{
			"/proc/net/tcp": title + tcp, "/proc/815/comm": comm + "\n", "/proc/815/stat": "815 (" + comm + ") S 1", "/proc/815/cmdline": "a\x00",
			"/proc/uptime": "1000.00 1.00\n", "/proc/815/fd/3": "-> socket:[4711]", "/proc/self/comm": "x",
		}, nil)}
	}
	free, own, stranger := node(line("0016", "0A")+line("280A", "01"), "sshd"), node(line("280A", "0A"), "kubelet"),
		node(line("280A", "0A"), "nginx")
	free.What, free.Want = "free", `
pass
want: free, or used by kubelet
got: free, or used by kubelet`
	own.What, own.Want = "kubelet runs", `
pass
want: free, or used by kubelet
got: free, or used by kubelet
evidence: /proc/net/tcp: port 10250: kubelet (pid 815)`
	microk8s := node(line("280A", "0A"), "kubelite")
	microk8s.What, microk8s.Want = "MicroK8s runs", strings.Replace(own.Want, "kubelet (pid", "kubelite (pid", 1)
	stranger.What, stranger.Want = "a stranger", `
fail
want: free, or used by kubelet
got: port 10250 is used by nginx (pid 815)
evidence: /proc/net/tcp: port 10250: nginx (pid 815)
remedy: stop the other program, or set port in kubelet's configuration`
	inUnit := node(line("280A", "0A"), "nginx")
	inUnit.What, inUnit.Node.Files["/proc/815/cgroup"] = "a stranger's unit", "0::/system.slice/nginx.service\n"
	inUnit.Want = strings.Replace(stranger.Want, "stop the other program", "stop its unit (`systemctl disable --now nginx.service`)", 1)
	hidden := func(what, uptime, status, net, want string) checkstest.Case {
		return checkstest.Case{What: what + ", and open files are unreadable", Want: want, Node: checkstest.Node(map[string]string{
			"/proc/net/tcp": title + line("280A", "0A"), "/proc/815/stat": "815 (kubelet) S 1", "/proc/815/cmdline": "kubelet\x00",
			"/proc/815/status": "Name:\tkubelet\nUid:\t" + status + "\n", "/proc/815/ns/net": "-> " + net, "/proc/uptime": uptime + " 1.00\n",
		}, nil)}
	}
	const root, notVisible = "0\t0\t0\t0", "unknown\nerror: port 10250 is in use, and its process is not visible"
	pods := node(line("280A", "0A"), "kubelet")
	pods.What, pods.Want = "another user's kubelet", strings.ReplaceAll(stranger.Want, "nginx", "kubelet")
	pods.Node.Files["/proc/815/status"] = "Name:\tkubelet\nUid:\t0\t1000\t0\t0\n"
	unseen := hidden("kubelet runs", "1000.00", root, "net:[1]", `
pass
want: free, or used by kubelet
got: free, or used by kubelet
evidence: /proc/net/tcp: port 10250: unknown process`)
	invisible := checkstest.Case{What: "no process is visible", Node: checkstest.Node(map[string]string{
		"/proc/net/tcp": title + line("280A", "0A"), "/proc/1/stat": "1 (systemd) S 1", "/proc/1/cmdline": "init\x00",
	}, nil), Want: notVisible}
	const elsewhere = "   0: 0100007F:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"
	const mapped = "   0: 0000000000000000FFFF00000100000A:280A 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0 " +
		"       0 4711 1 0 100 0 0 10 0\n"
	at := func(what, address, line, want string) checkstest.Case {
		return checkstest.Case{What: what, Want: want, Node: withUnit("--config="+kubeadmConfig, map[string]string{
			kubeadmConfig: header + "address: " + address + "\n", "/proc/net/tcp": "  sl\n" + line, "/proc/815/comm": "nginx\n",
			"/proc/815/fd/3": "-> socket:[4711]"})}
	}
	checkstest.RunOne(t, "kubelet.ports", checks.Boot, []checkstest.Case{free, own, microk8s, stranger, inUnit, unseen, invisible, pods,
		hidden("kubelet has just started", "29.00", root, "net:[1]", notVisible),
		hidden("a Pod's kubelet runs", "1000.00", root, "net:[2]", notVisible),
		hidden("another user's kubelet runs", "1000.00", "1000\t1000\t1000\t1000", "net:[1]", notVisible),
		at("a stranger at another address", "10.0.0.1", elsewhere, free.Want),
		at("a stranger at one address, kubelet at all", "0.0.0.0", elsewhere, stranger.Want),
		at("a stranger at kubelet's address, by IPv6", "10.0.0.1", mapped, stranger.Want),
		at("a stranger at kubelet's address, written as IPv6", "'::ffff:10.0.0.1'", mapped, stranger.Want),
		at("a stranger at all addresses", "10.0.0.1", line("280A", "0A"), stranger.Want),
	})
}
