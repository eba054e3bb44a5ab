package config

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Trait is something that a file holds.
type Trait string

// The traits of files.
const (
	PrivateKey      Trait = "private key"
	Token           Trait = "token"
	Password        Trait = "password"
	PublicKey       Trait = "public key"
	InitiatorName   Trait = "iSCSI initiator name"
	EngineID        Trait = "SNMP engine ID"
	HardwareAddress Trait = "hardware address"
	Permissive      Trait = "permissive = 1"
	AllowsNodeDirs  Trait = "rule that allows the directories of a node"
	NoDataSource    Trait = "datasource_list: [None]"
)

// traitPattern matches the text of a file that has a trait. If the pattern has a group, it must also match a value that is not a
// placeholder.
type traitPattern struct {
	trait Trait
	words []string // the text has one of them if it matches: a pattern takes a thousand times as long
	*regexp.Regexp
}

// Compiling the patterns for each file took most of the time of a check.
var traitPatterns = sync.OnceValue(func() (all []traitPattern) {
	assigned := func(names string) string {
		return `(?m)(?:^|[\s{,;])(?:export[ \t]+)?["']?(?:` + names + `)["']?[ \t]*[:=][ \t]*["']?([^\s"',}]+)`
	}
	for _, p := range []struct {
		trait          Trait
		words, pattern string
	}{
		{PrivateKey, "PRIVATE KEY|AGE-SECRET-KEY", `-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|AGE-SECRET-KEY-1[0-9A-Z]`},
		{PrivateKey, "client-key-data|PrivateKey", assigned(`client-key-data|PrivateKey`)},
		{Token, "token|Token|certificateKey|K3S_|RKE2_|TS_AUTHKEY", assigned(`token|id-token|refresh-token|agent-token|auth_token|` +
			`tlsBootstrapToken|certificateKey|K3S_TOKEN|K3S_AGENT_TOKEN|K3S_CLUSTER_SECRET|RKE2_TOKEN|TS_AUTHKEY`)},
		{Token, "--token|K10|eyJ|tskey-|_authToken", `_authToken=[^\s$]|--token[= ]["']?[a-z0-9]{6}\.[a-z0-9]{16}\b|` +
			`\bK10[0-9a-f]{64}::\S|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]|\btskey-\w+-\w`},
		{Password, "password|auth|token|secret", assigned(
			`password|auth|identitytoken|registrytoken|aws_secret_access_key|aws_session_token|secret|secret_key`)},
		{PublicKey, "ssh-|ecdsa-|sk-", `(?m)^[^#\n]*\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+|sk-(?:ssh|ecdsa)\S+)[ \t]+\S`},
		{InitiatorName, "InitiatorName", `(?m)^[ \t]*InitiatorName[ \t]*=[ \t]*\S`},
		{EngineID, "oldEngineID", `(?m)^[ \t]*oldEngineID[ \t]+\S`},
		{HardwareAddress, ":", `(?im)^[^#\n]*\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b`},
		{NoDataSource, "datasource_list", `(?m)^[ \t]*datasource_list:[ \t]*(?:\[[ \t]*["']?(?i:none)?["']?[ \t]*\]|` +
			`\n[ \t]*-[ \t]*["']?(?i:none)["']?[ \t]*(?:\n[^ \t-]|\n*\z))`},
		{Permissive, "permissive", `(?m)^[ \t]*permissive[ \t]*=[ \t]*1\b`},
		{AllowsNodeDirs, "dir=", `(?m)^[ \t]*allow\b[^\n]*\bdir=/(?:var/lib/(?:rancher|containerd|containers|kubelet|docker)|opt/cni)\b`},
	} {
		all = append(all, traitPattern{p.trait, strings.Split(p.words, "|"), regexp.MustCompile(p.pattern)})
	}
	return all
})

// Traits returns what a file holds outside of comments.
func Traits(text []byte) (all []Trait) {
	text = regexp.MustCompile(`(?m)^[ \t]*[#;].*$`).ReplaceAll(text, nil)
	for _, p := range traitPatterns() {
		if !slices.Contains(all, p.trait) && p.matches(text) {
			all = append(all, p.trait)
		}
	}
	return all
}

func (p traitPattern) matches(text []byte) bool {
	if !slices.ContainsFunc(p.words, func(word string) bool { return bytes.Contains(text, []byte(word)) }) {
		return false
	}
	for _, found := range p.FindAllSubmatch(text, -1) {
		if value := string(found[len(found)-1]); len(found) < 2 || value == "" || !isPlaceholder(value) {
			return true
		}
	}
	return false
}

// isPlaceholder reports whether a value is empty, or names the place of the real one: a variable, a template, a file.
func isPlaceholder(value string) bool {
	return slices.Contains([]string{"null", "~", "[]", "true", "false", "|", ">", "-"}, value) || strings.ContainsAny(value[:1], "$<{%/#&*!")
}
