package host_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
)

// TestSwitchedOff: the gate opens for the same kernel command lines for which the installed systemd skips nodegate-apply.service. With
// a backslash, which systemd's versions read differently, it may stay closed.
func TestSwitchedOff(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-analyze")
	for line, want := range map[string]bool{
		"quiet nodegate=off":               true,
		"nodegate=off nodegate=on":         true,
		"nodegate=on nodegate=off":         true,
		`"nodegate=off"`:                   true,
		`node"gate=off"`:                   true,
		"a\rnodegate=off":                  true,
		"-- nodegate=off":                  true,
		`"it's" nodegate=off`:              true,
		`foo="a nodegate=off b"`:           false,
		`foo='a nodegate=off b'`:           false,
		`foo="a nodegate=off`:              false,
		`nodegate="off"x`:                  false,
		"nodegate=off,":                    false,
		"a\u00a0nodegate=off":              false,
		"a\vnodegate=off":                  false,
		"a\fnodegate=off":                  false,
		`x='a\' nodegate=off b`:            false,
		`foo=\"a nodegate=off b\"`:         false,
		`nodegate\=off`:                    false,
		"NODEGATE=off nodegate nodegate=1": false,
	} {
		m := hosttest.Machine{Files: map[string]string{"/proc/cmdline": line + "\n"}}
		why, err := m.Host().BreakGlass("/etc/nodegate/disabled")
		assert.True(t, err == nil && (why != "") == want, "%q: %q, %v; want %t", line, why, err, want)
		c := exec.Command("systemd-analyze", "condition", "ConditionKernelCommandLine=nodegate=off")
		c.Env = append(os.Environ(), "SYSTEMD_PROC_CMDLINE="+line)
		_, failed := c.CombinedOutput()
		assert.True(t, (failed == nil) == want || strings.Contains(line, `\`) && !want, "%q: systemd matches: %t", line, failed == nil)
	}
	m := hosttest.Machine{Files: map[string]string{
		"/run/systemd/container": "docker", "/proc/cmdline": "nodegate=off", "/proc/1/cmdline": "/sbin/init\x00",
	}}
	if why, _ := m.Host().BreakGlass("/etc/nodegate/disabled"); why != "" {
		t.Errorf("in a container: %s, which systemd does not read", why)
	}
	m.Files["/proc/1/cmdline"] = "/sbin/init\x00nodegate=off\x00"
	if why, _ := m.Host().BreakGlass("/etc/nodegate/disabled"); why == "" {
		t.Error("in a container: the first process's arguments do not count")
	}
}
