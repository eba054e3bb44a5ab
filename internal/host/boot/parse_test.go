package boot

import (
	"fmt"
	"testing"

	"nodegate/internal/assert"
)

// TestParseConditions: a condition's value is shown if it has a type, and not if it is a free text.
func TestParseConditions(t *testing.T) {
	dump := "-> By units:\n\t-> Unit a.service:\n\t\tConditionEnvironment: TOKEN=S3cret untested\n\t\tAssertKernelCommandLine: !t=S3cret untested\n" +
		"\t\tAssertPathExists: |/x untested\n\t\tConditionHost: h untested\n"
	assert.Equal(t, fmt.Sprint(parseUnit(dump, "a.service").Conditions), "[{ConditionEnvironment (value left out)} "+
		"{AssertKernelCommandLine (value left out)} {AssertPathExists |/x} {ConditionHost h}]")
}

func TestParse(t *testing.T) {
	for printed, want := range map[string]string{
		"": "[]",
		"default.target: Found ordering cycle on a@1.service/start\ndefault.target: Found dependency on dev-disk\\x2dx.mount/start\n" +
			"default.target: Found dependency on a@1.service/start\ndefault.target: Job a@1.service/start deleted to break ordering cycle starting with b.service/start\n" +
			"x.target: Found ordering cycle on c.timer/start\nx.target: Found dependency on d.path/start\n": //
		`[a@1.service after dev-disk\x2dx.mount after a@1.service c.timer after d.path after c.timer]`,
		"sockets.target: Found ordering cycle: a.socket → sysinit.target → b.mount → a.socket\n"://
		"[a.socket after sysinit.target after b.mount after a.socket]",
		"x.target: Found ordering cycle: b.service/start after a.service/start - after b.service\n": "[a.service after b.service after a.service]",
		"Found dependency on a.service/start\n":                                                     "[]",
	} {
		assert.Equal(t, fmt.Sprint(parseCycles(printed)), want, "%q", printed)
	}
}
