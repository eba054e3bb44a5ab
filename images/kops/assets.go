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

func (l *linter) asset(a *yaml.Node) {
	l.fields(a, "fileAsset", []string{"name", "path", "roles", "content", "isBase64", "mode"})
	l.roles(a, "fileAsset")
	l.texts(a, "name", "path", "content")
	content, where := field(a, "content"), text(a, "path")
	if text(a, "name") == "" || content == nil || content.Value == "" {
		l.findAt(a, "incomplete-asset", "kops refuses a fileAsset without name and content", "give it both")
		return
	}
	l.mode(a, content)
	body := content.Value
	if yes(a, "isBase64") {
		decoded, err := decode(body)
		switch {
		case strings.HasSuffix(strings.TrimSpace(body), "="):
			l.findAt(content, "padded-base64", "kops reads base64 without padding: this ends in = and nodeup fails",
				"the same without = at its end, or the text itself and no isBase64")
		case err != nil:
			l.findAt(content, "bad-base64", "not base64: "+err.Error(), "what `base64 -w0 FILE | tr -d =` prints")
			return
		}
		body = decoded
	}
	l.place(a, where)
	if strings.HasPrefix(where, dropInDir) {
		l.dropIn(content, body, yes(a, "isBase64"))
	}
}

func (l *linter) mode(a, content *yaml.Node) {
	mode := field(a, "mode")
	switch {
	case mode == nil && strings.HasPrefix(content.Value, "#!"):
		l.findAt(content, "not-executable", "a script, and a fileAsset's mode is 0440 unless it says otherwise: nobody can run it",
			`mode: "0755"`)
	case mode == nil:
	case mode.Tag != "!!str":
		l.findAt(mode, "unquoted-mode", "YAML reads "+mode.Value+" as a number, kops wants a text", strconv.Quote(mode.Value))
	default:
		if bits, err := strconv.ParseUint(mode.Value, 8, 32); err != nil || bits > 0o7777 {
			l.findAt(mode, "bad-mode", strconv.Quote(mode.Value)+" is not an octal mode", `mode: "0644"`)
		} else if bits&0o111 == 0 && strings.HasPrefix(content.Value, "#!") {
			l.findAt(mode, "not-executable", "a script that nobody can run", `mode: "0755"`)
		}
	}
}

// place looks at files that systemd should read.
func (l *linter) place(a *yaml.Node, where string) {
	at := field(a, "path")
	for _, dir := range []string{"/lib/systemd/system/", "/usr/lib/systemd/system/"} {
		if rest, ok := strings.CutPrefix(where, dir); ok {
			l.findAt(at, "unit-directory", "distributions differ in this folder, and some cannot write to it", "/etc/systemd/system/"+rest)
		}
	}
	if path.Dir(where) == "/etc/systemd/system" && path.Ext(where) == ".service" {
		l.findAt(at, "unit-as-asset", "a fileAsset is written and nothing more: nobody enables or starts this unit", "a hook with "+rawForm)
	}
}

// dropIn looks at what is added to kubelet's unit.
func (l *linter) dropIn(content *yaml.Node, body string, encoded bool) {
	for _, s := range settings(body, "") {
		line, column := lineOf(content, s.line)
		if encoded {
			line, column = content.Line, content.Column
		}
		if s.section == "Unit" && (s.name == "Requires" || s.name == "BindsTo" || s.name == "Requisite") {
			l.find(line, column, "requires", "where "+s.values+" fails once, kubelet is not started, and systemd never tries again "+
				"(systemd#1312)", "Wants= and After=, and ExecStartPre= for what must hold")
		}
	}
}

// gates reports whether an asset holds kubelet's start.
func gates(a *yaml.Node) bool {
	if !strings.HasPrefix(text(a, "path"), dropInDir) {
		return false
	}
	body := text(a, "content")
	if yes(a, "isBase64") {
		body, _ = decode(body)
	}
	return slices.ContainsFunc(settings(body, ""), func(s setting) bool {
		return s.section == "Service" && s.name == "ExecStartPre" && s.values != ""
	})
}

// decode reads base64 with or without its padding.
func decode(text string) (string, error) {
	text = strings.Join(strings.Fields(text), "")
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return string(b), err
}
