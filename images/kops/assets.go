package kops

import (
	"encoding/base64"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const dropInDir = "/etc/systemd/system/kubelet.service.d/"

func (l *linter) checkAsset(a *yaml.Node) {
	for _, r := range l.listField(a, "roles", yaml.ScalarNode) {
		if r.Value == "Master" {
			l.addFindingAt(r, "master-role", "kops converts Master to ControlPlane in hooks, not in fileAssets: no node gets this file by that role",
				"write `ControlPlane`")
		}
	}
	content, where := field(a, "content"), text(a, "path")
	if content == nil {
		return
	}
	l.checkMode(a, content)
	if isTrue(a, "isBase64") && strings.HasSuffix(strings.TrimSpace(content.Value), "=") {
		l.addFindingAt(content, "padded-base64", "kops reads base64 without padding: nodeup fails at the = at the end",
			"remove the = at the end, or write plain text without isBase64")
	}
	if path.Dir(where) == "/etc/systemd/system" && path.Ext(where) == ".service" {
		l.addFindingAt(field(a, "path"), "unit-as-asset", "kops only writes a fileAsset: nothing enables or starts this unit",
			"make it a hook: "+rawForm)
	}
	if strings.HasPrefix(where, dropInDir) {
		l.checkDropIn(content, bodyOf(a), isTrue(a, "isBase64"))
	}
}

func (l *linter) checkMode(a, content *yaml.Node) {
	mode := field(a, "mode")
	switch {
	case !strings.HasPrefix(content.Value, "#!"):
	case mode == nil:
		l.addFindingAt(content, "not-executable", "this script cannot be run: the default mode of a fileAsset is 0440",
			"add `mode: \"0755\"`")
	default:
		if bits, err := strconv.ParseUint(mode.Value, 8, 32); err == nil && bits&0o111 == 0 {
			l.addFindingAt(mode, "not-executable", "this script cannot be run: its mode has no execute bit", "write `mode: \"0755\"`")
		}
	}
}

// checkDropIn checks a drop-in of kubelet's unit.
func (l *linter) checkDropIn(content *yaml.Node, body string, encoded bool) {
	for _, s := range parseUnit(body, "") {
		line, column := positionOf(content, s.line)
		if encoded {
			line, column = content.Line, content.Column
		}
		if s.section == "Unit" && (s.name == "Requires" || s.name == "BindsTo" || s.name == "Requisite") {
			l.addFinding(line, column, "requires", "if "+s.values+" fails once, systemd does not start kubelet and never tries again "+
				"(systemd#1312)", "use Wants= and After=, and ExecStartPre= for a condition that must hold kubelet")
		}
	}
}

// gatesKubelet reports whether an asset is a drop-in that holds kubelet's start.
func gatesKubelet(a *yaml.Node) bool {
	if !strings.HasPrefix(text(a, "path"), dropInDir) {
		return false
	}
	return slices.ContainsFunc(parseUnit(bodyOf(a), ""), func(s setting) bool {
		return s.section == "Service" && s.name == "ExecStartPre" && s.values != ""
	})
}

// bodyOf returns the content of a file. It decodes base64, with or without padding, as far as it is valid.
func bodyOf(a *yaml.Node) string {
	body := text(a, "content")
	if isTrue(a, "isBase64") {
		decoded, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.Join(strings.Fields(body), ""), "="))
		body = string(decoded)
	}
	return body
}
