package units_test

import (
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// TestMemoryNotInSysctlD: a parameter with which a wrong number stops the machine is not in sysctl.d, where the break-glass does not reach.
func TestMemoryNotInSysctlD(t *testing.T) {
	p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte("sysctl \"vm.min_free_kbytes\" { value = 262144 }\n" +
		"sysctl \"vm.swappiness\" { value = 10 }\nsysctl \"kernel.pid_max\" { value = 8192 }\n" +
		"sysctl \"fs.file-max\" { value = 2097152 }\nsysctl \"vm.max_map_count\" { value = 262144 }\nsysctl \"vm.min_free*\" { value = 67584 }\n")}}, policy.Options{})
	require.True(t, !diags.HasErrors(), "%v", diags)
	files, err := units.Files(p, nil, units.Program{})
	require.NoError(t, err)
	for _, f := range files {
		if strings.HasPrefix(f.Path, "/etc/sysctl.d/") && (!strings.Contains(string(f.Content), "\nvm.swappiness = 10\n") ||
			!strings.Contains(string(f.Content), "\nfs.file-max = 2097152\nvm.max_map_count = 262144\n") ||
			!strings.Contains(string(f.Content), "# vm.min_free_kbytes: 262144; only `nodegate apply` sets it\n") ||
			strings.Contains(string(f.Content), "pid_max = ") || strings.Contains(string(f.Content), "free* = ")) {
			t.Errorf("%s:\n%s", f.Path, f.Content)
		}
	}
}
