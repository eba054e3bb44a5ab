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

func (l *linter) checkHook(s spec, h *yaml.Node, gated bool) {
	l.checkFields(h, "hook", []string{"name", "enabled", "disabled", "roles", "requires", "before", "execContainer", "manifest",
		"useRawManifest"})
	l.checkEnabled(s, h)
	l.checkRoles(h, "hook")
	l.checkTextFields(h, "name", "manifest")
	if isDisabled(h) {
		return
	}
	raw, manifest, container := isTrue(h, "useRawManifest"), field(h, "manifest"), field(h, "execContainer")
	if raw {
		for _, name := range []string{"before", "requires", "execContainer"} {
			if key, v := entry(h, name); v != nil {
				l.addFindingAt(key, "raw-and-more", "kops refuses the field "+name+" beside useRawManifest",
					"move it into the manifest: Before= or Requires= in [Unit]")
			}
		}
	}
	if !raw {
		l.checkOrder(h)
	}
	switch {
	case container != nil:
		l.checkContainer(container)
	case manifest == nil:
		l.addFindingAt(h, "empty-hook", "kops refuses a hook without manifest or execContainer", "add a manifest or remove the hook")
	}
	if manifest != nil {
		l.checkManifest(h, manifest, raw, gated)
	}
}

// checkEnabled checks the field that disables a hook: its name depends on the API version.
func (l *linter) checkEnabled(s spec, h *yaml.Node) {
	disabled, _ := entry(h, "disabled")
	enabled, _ := entry(h, "enabled")
	switch {
	case disabled != nil && s.version == "v1alpha3":
		l.addFindingAt(disabled, "wrong-switch", "v1alpha3 does not know the field disabled", "write `enabled: false`")
	case enabled != nil && s.version == "v1alpha2":
		l.addFindingAt(enabled, "wrong-switch", "v1alpha2 does not know the field enabled", "write `disabled: true`")
	case disabled != nil && s.group:
		l.addFindingAt(disabled, "disabled-in-instancegroup", "kops converts disabled only in a Cluster's hooks: in an InstanceGroup it may "+
			"have the opposite effect", "remove the hook, or disable it in the Cluster")
	}
}

// checkOrder checks the dependencies of a hook that is not raw.
func (l *linter) checkOrder(h *yaml.Node) {
	for _, u := range l.listField(h, "before", yaml.ScalarNode) {
		if u.Value == kubelet {
			l.addFindingAt(u, "before-kubelet", "before: kubelet.service is a race at the first boot (nodeup restarts services in no fixed order "+
				"and does not wait for them), and a failed hook never holds kubelet", gateForm)
		}
	}
	if key, v := entry(h, "requires"); v != nil {
		l.addFindingAt(key, "requires", "if a required unit fails, systemd does not start the hook and never tries again "+
			"(systemd#1312)", "use Wants= and After= in a raw manifest, and Restart=on-failure in the hook")
	}
}

func (l *linter) checkContainer(c *yaml.Node) {
	image := field(c, "image")
	if image == nil {
		l.addFindingAt(c, "empty-hook", "kops refuses an execContainer without image", "add `image: NAME@sha256:DIGEST`")
		return
	}
	if !strings.Contains(image.Value, "@sha256:") {
		l.addFindingAt(image, "unpinned-image", "a tag can be moved, and this image runs as root with the host's file system at every boot",
			"pin it: `image: NAME@sha256:DIGEST`")
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
	case !raw && field(h, "execContainer") == nil:
		l.addFindingAt(manifest, "sections-below-service", "kops writes this manifest below [Service]: its own sections work only by "+
			"accident", rawForm)
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
		case s.section == "Install" && s.name == "WantedBy" && len(strings.Fields(s.values)) > 1:
			l.addFinding(line, column, "two-targets", "kops understands only one target in WantedBy=: it treats this unit as disabled, logs a "+
				"warning, and enables it at each boot", "write `WantedBy=multi-user.target`")
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

// checkFields reports keys that kops does not know: it refuses the manifest or, worse, ignores them.
func (l *linter) checkFields(m *yaml.Node, what string, known []string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if k := m.Content[i]; !slices.Contains(known, k.Value) && k.Value != "<<" {
			l.addFindingAt(k, "unknown-field", "unknown field "+k.Value+" in a "+what, "use one of "+strings.Join(known, ", "))
		}
	}
}

func (l *linter) checkRoles(m *yaml.Node, what string) {
	for _, r := range l.listField(m, "roles", yaml.ScalarNode) {
		switch {
		case slices.Contains([]string{"ControlPlane", "Node", "APIServer", "Bastion"}, r.Value):
		case r.Value == "Master" && what == "hook": // kops converts it
		case r.Value == "Master":
			l.addFindingAt(r, "master-role", "kops converts Master to ControlPlane in hooks, not in fileAssets: no node gets this file by that role",
				"write `ControlPlane`")
		default:
			l.addFindingAt(r, "unknown-role", "unknown role "+r.Value+": no node gets this "+what+" by it", "write `ControlPlane` or `Node`")
		}
	}
	l.checkMissingRole(m, what)
}
