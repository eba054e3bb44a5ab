package config

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io/fs"
	"regexp"
	"strings"
	"sync"
)

// Text is the content of a file of the machine. Only a Filter shows it, so no text can reach an output around the filter.
type Text struct {
	private bool
	text    []byte
}

// NewText returns the text of a file with these permissions.
func NewText(mode fs.FileMode, text []byte) Text { return Text{mode.Perm()&0o004 == 0, text} }

// Kind is the part of a file that a filter shows.
type Kind int

// The kinds of files. Policy and Identity are shown whole: a replay evaluates the policy, and every report names the machine.
const (
	ByPath Kind = iota
	Plain
	Identity
	Policy
	Parameter // below /proc/sys
	Certificate
	TraitsOnly
)

// As returns files that a filter treats as being of a kind.
func As(files Files, kind Kind) Files {
	if r, shows := files.(interface{ As(kind Kind) Files }); shows {
		return r.As(kind)
	}
	return files
}

var identity = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^/proc/sys/|^/proc/([^/]+/)?(stat|status|limits|comm|uid_map|cgroup|net/.*)$|` +
		`^/proc/(devices|filesystems|meminfo|modules|swaps|uptime|version|version_signature)$|^/sys/|/os-release$|^/etc/hostname$|` +
		`^(/usr)?/lib/modules/|^/etc/sysctl\.d/99-zz-nodegate\.conf$`)
})

// KindOf returns the kind of the file at a path.
func KindOf(name string) Kind {
	switch {
	case strings.HasPrefix(name, "/etc/nodegate/"):
		return Policy
	case strings.HasPrefix(name, "/proc/sys/") && name != "/proc/sys/kernel/hostname":
		return Parameter
	case identity().MatchString(name):
		return Identity
	}
	return Plain
}

// Show returns what checks see of a file. Of one that every user may read that is everything, unless it leaves the machine.
func (f *Filter) Show(kind Kind, name string, t Text, leaves bool) []byte {
	if kind == ByPath {
		kind = KindOf(name)
	}
	switch {
	case leaves && strings.HasSuffix(name, "/os-release"):
		return bytes.Join(factsOfOS().FindAll(t.text, -1), nil)
	case kind == Policy:
		return privateKey().ReplaceAll(t.text, []byte(leftOut))
	case !t.private && !leaves, kind == Identity && (!t.private || !strings.HasPrefix(name, "/sys/")):
		return t.text
	case kind == Parameter && !t.private && !commandParameter().MatchString(name):
		return t.text // the kernel's own words
	case kind == TraitsOnly:
		return []byte(traitsOnly(string(t.text)))
	case kind == Certificate:
		return certificates(t.text)
	case t.private && (kind == Parameter || kind == Identity): // a key may have the shape of an address
		return regexp.MustCompile(`[^\s]*[^\s0-9-][^\s]*|[0-9]+-\S*`).ReplaceAllFunc(t.text, func(word []byte) []byte {
			return []byte(f.Hide(string(word)))
		})
	}
	return []byte(f.words(string(t.text)))
}

// factsOfOS matches the variables of os-release that a report or a policy reads. Others are texts and URLs of a vendor.
var factsOfOS = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(ID|ID_LIKE|VERSION_ID|PRETTY_NAME)=.*(\n|\z)`) })

// commandParameter matches the parameters whose value people write freely: a command line with arguments, or a name.
var commandParameter = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(core_pattern|domainname|hostname|hotplug|modprobe|poweroff_cmd)$`)
})

// leftOut replaces a private key.
const leftOut = "(left out)"

var privateKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
})

// HasPrivateKey reports whether a file holds a PEM private key, or held one before a filter removed it.
func HasPrivateKey(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return true
		}
	}
	return bytes.Contains(text, []byte(leftOut))
}

// certificates returns the certificates of a PEM file, and in place of private keys a mark that HasPrivateKey recognizes.
func certificates(text []byte) []byte {
	out := []byte{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			block.Bytes = []byte{0} // not readable either
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	if HasPrivateKey(text) {
		out = append(out, leftOut+"\n"...)
	}
	return append(out, bytes.Repeat([]byte("\n"), 1-min(len(out), 1))...)
}

// certificateData is certificates for the base64 of a kubeconfig.
func certificateData(value string) string {
	der, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return Placeholder
	}
	return base64.StdEncoding.EncodeToString(certificates(der))
}
