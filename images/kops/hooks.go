package kops

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const kubelet = "kubelet.service"

// rawForm is the remedy for a hook that is not a complete unit.
const rawForm = "set useRawManifest: true and write whole sections: [Unit], [Service], and [Install] with " +
	"WantedBy=multi-user.target; `nodegate export kops` prints an example"

// gateForm is the remedy for a hook that does not hold kubelet.
const gateForm = "add a fileAsset /etc/systemd/system/kubelet.service.d/10-nodegate.conf with ExecStartPre=: if it fails, kubelet's " +
	"start fails and Restart=always tries again; `nodegate export kops` prints an example"

// startsLate describes a hook without [Install]; the times were measured on a node in a virtual machine.
const startsLate = "systemd does not start the unit after a reboot (kops#14527), and nodeup starts it late, if at all: measured at 56 s, " +
	"after kubelet had started at 41 s"

func (l *linter) checkHook(h *yaml.Node, gated bool) {
	if isDisabled(h) {
		return
	}
	raw, manifest := isTrue(h, "useRawManifest"), field(h, "manifest")
	if !raw {
		l.checkOrder(h)
	}
	if manifest != nil {
		l.checkManifest(h, manifest, raw, gated)
	}
}

// unitOf returns the unit that kops makes of a hook, or "" if kops generates the name.
func unitOf(h *yaml.Node) string {
	name := text(h, "name")
	suffixes := []string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".snapshot",
		".slice", ".scope"}
	if name == "" || slices.Contains(suffixes, path.Ext(name)) {
		return name
	}
	return name + ".service"
}

// checkOrder checks the dependencies of a hook that is not raw.
func (l *linter) checkOrder(h *yaml.Node) {
	for _, u := range l.listField(h, "before", yaml.ScalarNode) {
		if u.Value == kubelet {
			l.addFindingAt(u, "before-kubelet", "before: kubelet.service is a race at the first boot (nodeup restarts services in no fixed order "+
				"and does not wait for them), and a failed hook never holds kubelet", gateForm)
		}
	}
	if v := field(h, "requires"); v != nil {
		l.addFindingAt(v, "requires", "if a required unit fails, systemd does not start the hook and never tries again "+
			"(systemd#1312)", "use Wants= and After= in a raw manifest, and Restart=on-failure in the hook")
	}
}

func (l *linter) checkManifest(h, manifest *yaml.Node, raw, gated bool) {
	section := "Service"
	if raw {
		section = ""
	}
	all := parseUnit(manifest.Value, section)
	switch has := hasInstall(all); {
	case !has && slices.Contains(l.timers, strings.TrimSuffix(unitOf(h), ".service")+".timer"): // its timer starts it
	case raw && !has:
		l.addFindingAt(manifest, "no-install", "no [Install] with WantedBy=: "+startsLate,
			"add [Install] with WantedBy=multi-user.target at the end of the manifest")
	case !raw && !has:
		l.addFindingAt(manifest, "no-install", "kops turns this into [Unit] and [Service] without [Install]: "+startsLate, rawForm)
	}
	for _, s := range all {
		line, column := positionOf(manifest, s.line)
		switch {
		case s.name == "Before" && s.section == "Unit" && s.containsUnit(kubelet) && !gated:
			l.addFinding(line, column, "before-kubelet", "Before=kubelet.service holds kubelet only if both start together, which nodeup "+
				"does not do at the first boot; it does not hold kubelet if this unit fails", gateForm)
		case s.section == "Install" && s.name == "RequiredBy" && s.containsUnit(kubelet):
			l.addFinding(line, column, "required-by-kubelet", "if this unit fails once, systemd does not start kubelet and never tries "+
				"again (systemd#1312)", gateForm)
		case strings.HasPrefix(s.name, "Exec") && runsProgram(s.values, "ethtool"):
			l.addFinding(line, column, "ethtool", "kops does not install ethtool since 1.34",
				"install the package in the image, or use a link block in nodegate's policy")
		}
	}
}

// runsProgram reports whether a command line names a program.
func runsProgram(command, program string) bool {
	return slices.ContainsFunc(strings.Fields(command), func(word string) bool {
		return path.Base(strings.Trim(word,
			"'\"@-+!:;")) == program
	})
}
