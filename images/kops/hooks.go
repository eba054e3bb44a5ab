package kops

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const kubelet = "kubelet.service"

// rawForm is what every hook should look like.
const rawForm = "useRawManifest: true, and in manifest whole sections: [Unit], [Service], and [Install] with " +
	"WantedBy=multi-user.target; `nodegate export kops` writes it"

// gateForm is what holds kubelet.
const gateForm = "a fileAsset /etc/systemd/system/kubelet.service.d/10-nodegate.conf with ExecStartPre=: a failed one fails kubelet's " +
	"start, and Restart=always tries again; `nodegate export kops` writes it"

// late is what happens without [Install]; the figures are those of a node in a virtual machine.
const late = "after a reboot systemd does not start it (kops#14527); nodeup may, late: seen at 56 s, with kubelet up since 41 s"

func (l *linter) hook(s spec, h *yaml.Node, gated bool) {
	l.fields(h, "hook", []string{"name", "enabled", "disabled", "roles", "requires", "before", "execContainer", "manifest",
		"useRawManifest"})
	l.enabled(s, h)
	l.roles(h, "hook")
	l.texts(h, "name", "manifest")
	if off(h) {
		return
	}
	raw, manifest, container := yes(h, "useRawManifest"), field(h, "manifest"), field(h, "execContainer")
	if raw {
		for _, name := range []string{"before", "requires", "execContainer"} {
			if key, v := entry(h, name); v != nil {
				l.findAt(key, "raw-and-more", "kops refuses "+name+" beside useRawManifest",
					"say it in the manifest: Before=, Requires= below [Unit]")
			}
		}
	}
	if !raw {
		l.order(h)
	}
	switch {
	case container != nil:
		l.container(container)
	case manifest == nil:
		l.findAt(h, "empty-hook", "a hook without manifest and execContainer: kops refuses it", "give it a manifest, or take it out")
	}
	if manifest != nil {
		l.manifest(h, manifest, raw, gated)
	}
}

// enabled looks at how a hook is switched off.
func (l *linter) enabled(s spec, h *yaml.Node) {
	disabled, _ := entry(h, "disabled")
	enabled, _ := entry(h, "enabled")
	switch {
	case disabled != nil && s.version == "v1alpha3":
		l.findAt(disabled, "wrong-switch", "v1alpha3 has no field disabled", "enabled: false")
	case enabled != nil && s.version == "v1alpha2":
		l.findAt(enabled, "wrong-switch", "v1alpha2 has no field enabled", "disabled: true")
	case disabled != nil && s.group:
		l.findAt(disabled, "disabled-in-instancegroup", "kops converts disabled for a Cluster's hooks only: in an InstanceGroup it may "+
			"do the opposite", "take the hook out, or switch it off in the Cluster")
	}
}

// order looks at the dependencies of a hook that is not raw.
func (l *linter) order(h *yaml.Node) {
	for _, u := range l.list(h, "before", yaml.ScalarNode) {
		if u.Value == kubelet {
			l.findAt(u, "before-kubelet", "before: kubelet.service is a race at the first boot (nodeup restarts services in no order "+
				"and waits for none), and a hook that fails never holds kubelet", gateForm)
		}
	}
	if key, v := entry(h, "requires"); v != nil {
		l.findAt(key, "requires", "where one that is required fails, systemd does not start the hook, and never tries again "+
			"(systemd#1312)", "Wants= and After= in a raw manifest, and Restart=on-failure in the hook")
	}
}

func (l *linter) container(c *yaml.Node) {
	image := field(c, "image")
	if image == nil {
		l.findAt(c, "empty-hook", "execContainer without image: kops refuses it", "image: NAME@sha256:DIGEST")
		return
	}
	if !strings.Contains(image.Value, "@sha256:") {
		l.findAt(image, "unpinned-image", "a tag can be moved, and this image runs as root with the host's file system at every boot",
			"image: NAME@sha256:DIGEST")
	}
}

func (l *linter) manifest(h, manifest *yaml.Node, raw, gated bool) {
	section := "Service"
	if raw {
		section = ""
	}
	all := settings(manifest.Value, section)
	switch has := installed(all); {
	case !has && slices.Contains(l.timers, strings.TrimSuffix(unitOf(h), ".service")+".timer"): // which starts it
	case raw && !has:
		l.findAt(manifest, "no-install", "no [Install] with WantedBy=: "+late, "[Install] and WantedBy=multi-user.target at the manifest's end")
	case !raw && !has:
		l.findAt(manifest, "no-install", "kops makes only [Unit] and [Service] of this, no [Install]: "+late, rawForm)
	case !raw && field(h, "execContainer") == nil:
		l.findAt(manifest, "sections-below-service", "kops puts this text below [Service]: sections in it work by accident", rawForm)
	}
	for _, s := range all {
		line, column := lineOf(manifest, s.line)
		switch {
		case s.name == "Before" && s.section == "Unit" && s.names(kubelet) && !gated:
			l.find(line, column, "before-kubelet", "Before=kubelet.service holds kubelet only where both start together, which nodeup "+
				"does not do at the first boot, and not where this unit fails", gateForm)
		case s.section == "Install" && s.name == "RequiredBy" && s.names(kubelet):
			l.find(line, column, "required-by-kubelet", "where this unit fails once, kubelet is not started, and systemd never tries "+
				"again (systemd#1312)", gateForm)
		case s.section == "Install" && s.name == "WantedBy" && len(strings.Fields(s.values)) > 1:
			l.find(line, column, "two-targets", "kops understands one target in WantedBy=: it takes this unit for not enabled, logs a warning, "+
				"and enables it at each boot", "WantedBy=multi-user.target")
		case strings.HasPrefix(s.name, "Exec") && runs(s.values, "ethtool"):
			l.find(line, column, "ethtool", "kops installs no ethtool since 1.34", "a package in the image, or a link in nodegate's policy")
		}
	}
}

// runs reports whether a command line names a program.
func runs(command, program string) bool {
	return slices.ContainsFunc(strings.Fields(command), func(word string) bool {
		return path.Base(strings.Trim(word,
			"'\"@-+!:;")) == program
	})
}

// fields names keys that kops does not know: it refuses the manifest, or worse, forgets them.
func (l *linter) fields(m *yaml.Node, what string, known []string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if k := m.Content[i]; !slices.Contains(known, k.Value) && k.Value != "<<" {
			l.findAt(k, "unknown-field", "a "+what+" has no field "+k.Value, "one of "+strings.Join(known, ", "))
		}
	}
}

func (l *linter) roles(m *yaml.Node, what string) {
	for _, r := range l.list(m, "roles", yaml.ScalarNode) {
		switch {
		case slices.Contains([]string{"ControlPlane", "Node", "APIServer", "Bastion"}, r.Value):
		case r.Value == "Master" && what == "hook": // kops converts it
		case r.Value == "Master":
			l.findAt(r, "master-role", "kops converts Master to ControlPlane in hooks, not in fileAssets: no node gets this file by it",
				"ControlPlane")
		default:
			l.findAt(r, "unknown-role", "there is no role "+r.Value+": no node gets this "+what+" by it", "ControlPlane or Node")
		}
	}
	l.missed(m, what)
}
