package units_test

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"nodegate/policy"
	"nodegate/units"
)

// TestOldestSystemd: every setting of what install writes, by what the oldest systemd did with it when it was booted (docs/supported.md).
func TestOldestSystemd(t *testing.T) {
	known := words(`AccuracySec After Before CapabilityBoundingSet ConditionKernelCommandLine ConditionPathExists Conflicts DefaultDependencies
		Description ExecReload ExecStart ExecStartPre IPAddressAllow IPAddressDeny KeyringMode LockPersonality MemoryDenyWriteExecute MemoryMax
		NoNewPrivileges NotifyAccess OOMScoreAdjust OnActiveSec OnUnitInactiveSec PrivateDevices PrivateTmp ProtectControlGroups ProtectHome
		ProtectKernelTunables ProtectSystem RandomizedDelaySec RemainAfterExit RemoveIPC RequiredBy RequiresMountsFor Restart RestartSec
		RestrictAddressFamilies RestrictNamespaces RestrictRealtime RuntimeDirectory RuntimeDirectoryPreserve StartLimitIntervalSec
		SuccessExitStatus SystemCallArchitectures SystemCallErrorNumber SystemCallFilter TasksMax TimeoutStartSec Type UMask WantedBy Wants
		WatchdogSec`)
	// It says so in its log, and runs the unit without. Nothing that holds kubelet may be among them.
	ignored := words("ProtectHostname ProtectKernelLogs RestrictSUIDSGID")
	for _, publish := range []string{"", `publish { by = "timer" }`, `publish { by = "watch" }`} {
		for _, f := range filesOf(t, units.Copied([]byte("x")).AssessingBoot().AllowingWritable(),
			policy.File{Name: "a.hcl", Text: []byte(policyOne + publish)}) {
			if !strings.HasPrefix(f.Path, "/etc/systemd/") {
				continue
			}
			for lines := bufio.NewScanner(bytes.NewReader(f.Content)); lines.Scan(); {
				name, _, set := strings.Cut(lines.Text(), "=")
				switch {
				case !set || strings.HasPrefix(name, "#") || known[name]:
				case !ignored[name]:
					t.Errorf("%s: is %s= in systemd %d? Ask /lib/systemd/systemd --dump-configuration-items of it", f.Path, name, units.OldestSystemd)
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
