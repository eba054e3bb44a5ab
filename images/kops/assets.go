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
	l.checkFields(a, "fileAsset", []string{"name", "path", "roles", "content", "isBase64", "mode"})
	l.checkRoles(a, "fileAsset")
	l.checkTextFields(a, "name", "path", "content")
	content, where := field(a, "content"), text(a, "path")
	if text(a, "name") == "" || content == nil || content.Value == "" {
		l.addFindingAt(a, "incomplete-asset", "kops refuses a fileAsset without name or content", "add both fields")
		return
	}
	l.checkMode(a, content)
	body := content.Value
	if isTrue(a, "isBase64") {
		decoded, err := decodeBase64(body)
		switch {
		case strings.HasSuffix(strings.TrimSpace(body), "="):
			l.addFindingAt(content, "padded-base64", "kops reads base64 without padding: nodeup fails at the = at the end",
				"remove the = at the end, or write plain text without isBase64")
		case err != nil:
			l.addFindingAt(content, "bad-base64", "not base64: "+err.Error(), "paste the output of `base64 -w0 FILE | tr -d =`")
			return
		}
		body = decoded
	}
	l.checkPlace(a, where)
	if strings.HasPrefix(where, dropInDir) {
		l.checkDropIn(content, body, isTrue(a, "isBase64"))
	}
}

func (l *linter) checkMode(a, content *yaml.Node) {
	mode := field(a, "mode")
	switch {
	case mode == nil && strings.HasPrefix(content.Value, "#!"):
		l.addFindingAt(content, "not-executable", "this script cannot be run: the default mode of a fileAsset is 0440",
			"add `mode: \"0755\"`")
	case mode == nil:
	case mode.Tag != "!!str":
		l.addFindingAt(mode, "unquoted-mode", "YAML reads "+mode.Value+" as a number, and kops expects a string",
			"quote it: `"+strconv.Quote(mode.Value)+"`")
	default:
		if bits, err := strconv.ParseUint(mode.Value, 8, 32); err != nil || bits > 0o7777 {
			l.addFindingAt(mode, "bad-mode", strconv.Quote(mode.Value)+" is not an octal mode", "write an octal mode such as `mode: \"0644\"`")
		} else if bits&0o111 == 0 && strings.HasPrefix(content.Value, "#!") {
			l.addFindingAt(mode, "not-executable", "this script cannot be run: its mode has no execute bit", "write `mode: \"0755\"`")
		}
	}
}

// checkPlace checks the path of files that systemd should read.
func (l *linter) checkPlace(a *yaml.Node, where string) {
	at := field(a, "path")
	for _, dir := range []string{"/lib/systemd/system/", "/usr/lib/systemd/system/"} {
		if rest, ok := strings.CutPrefix(where, dir); ok {
			l.addFindingAt(at, "unit-directory", "distributions use different directories for packaged units, and some mount them read-only",
				"write it to /etc/systemd/system/"+rest)
		}
	}
	if path.Dir(where) == "/etc/systemd/system" && path.Ext(where) == ".service" {
		l.addFindingAt(at, "unit-as-asset", "kops only writes a fileAsset: nothing enables or starts this unit", "make it a hook: "+rawForm)
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
	body := text(a, "content")
	if isTrue(a, "isBase64") {
		body, _ = decodeBase64(body)
	}
	return slices.ContainsFunc(parseUnit(body, ""), func(s setting) bool {
		return s.section == "Service" && s.name == "ExecStartPre" && s.values != ""
	})
}

// decodeBase64 reads base64 with or without padding.
func decodeBase64(text string) (string, error) {
	text = strings.Join(strings.Fields(text), "")
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return string(b), err
}
