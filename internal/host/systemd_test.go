package host

import "testing"

func TestLastError(t *testing.T) {
	const klog = "E1121 19:25:58.452529     132 run.go:72] \"command failed\" err="
	for _, c := range []struct{ log, want string }{
		{"", ""},
		{"one\ntwo\n", "two"},
		{"I1121 a\n" + klog + "\"x\"\nI1121 the last words, no error\n", klog + "\"x\""},
		{klog + "<\n\tfailed to load: no kind\n >\n", klog + "< failed to load: no kind"},
		{"Error: unknown flag\nUsage:\n", "Error: unknown flag"},
	} {
		if got := lastError(c.log); got != c.want {
			t.Errorf("%q: %q, want %q", c.log, got, c.want)
		}
	}
}

func TestLastExit(t *testing.T) {
	const control = "kubelet.service: Control process exited, code=exited, status=1/FAILURE\n"
	const three = "kubelet.service: Main process exited, code=exited, status=3/FAILURE\n"
	const killed = "kubelet.service: Main process exited, code=killed, status=9/KILL\n"
	for log, want := range map[string]string{
		"": "", control: "", three: "exit status 3", three + control: "exit status 3", three + killed: "signal 9",
		killed + three: "exit status 3",
	} {
		if got := lastExit(log); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}
