package units_test

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"nodegate/policy"
	"nodegate/units"
)

// TestOldestSystemd: the oldest systemd knows every option in the installed units, or ignores it harmlessly. The lists were
// recorded by booting that version (docs/supported.md).
func TestOldestSystemd(t *testing.T) {
	known := words(`After Before CapabilityBoundingSet ConditionKernelCommandLine ConditionPathExists Conflicts DefaultDependencies
		Description ExecReload ExecStart ExecStartPre IPAddressAllow IPAddressDeny KeyringMode LimitAS LimitNOFILE LockPersonality MemoryDenyWriteExecute MemoryMax
		NoNewPrivileges NotifyAccess OOMScoreAdjust PrivateDevices PrivateTmp ProtectControlGroups ProtectHome
		ProtectKernelTunables ProtectSystem RemainAfterExit RemoveIPC RequiredBy RequiresMountsFor Restart RestartSec
		RestrictAddressFamilies RestrictNamespaces RestrictRealtime RuntimeDirectory RuntimeDirectoryPreserve StartLimitIntervalSec
		SuccessExitStatus SystemCallArchitectures SystemCallErrorNumber SystemCallFilter TasksMax TimeoutStartSec Type UMask WantedBy Wants
		WatchdogSec`)
	// It logs that it ignores these options and runs the unit. The drop-in that holds kubelet must not use them.
	ignored := words("ProtectHostname ProtectKernelLogs RestrictSUIDSGID")
	for _, publish := range []string{"", `publish {}`} {
		for _, f := range filesOf(t, units.Copied([]byte("x")).AllowingWritable(),
			policy.File{Name: "a.hcl", Text: []byte(policyOne + publish)}) {
			if !strings.HasPrefix(f.Path, "/etc/systemd/") {
				continue
			}
			for lines := bufio.NewScanner(bytes.NewReader(f.Content)); lines.Scan(); {
				name, _, set := strings.Cut(lines.Text(), "=")
				switch {
				case !set || strings.HasPrefix(name, "#") || known[name]:
				case !ignored[name]:
					t.Errorf("%s: does systemd %[3]d know %[2]s=? Run `/lib/systemd/systemd --dump-configuration-items` of that "+
						"version", f.Path, name, units.OldestSystemd)
				case strings.HasSuffix(f.Path, ".d/10-nodegate.conf"):
					t.Errorf("%s: systemd %d ignores %s=", f.Path, units.OldestSystemd, name)
				}
			}
		}
	}
}

func words(text string) map[string]bool {
	all := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		all[w] = true
	}
	return all
}
