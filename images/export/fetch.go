package export

import (
	_ "embed"
	"strings"

	"nodegate/units"
)

const (
	fetchFile = units.FetchFile
	fetchUnit = units.FetchUnit
	inImage   = "/nodegate" // path of the binary in the container image
)

//go:embed fetch.sh
var fetchScript string

//go:embed fetch_url.sh
var fetchURL string

//go:embed fetch_image.sh
var fetchImage string

// fetched reports whether the node fetches the binary itself.
func (d Delivery) fetched() bool { return d.URL != "" || d.Image != "" }

// gate returns the command that holds the unit, or "" if nothing is fetched.
func (d Delivery) gate() string {
	if !d.fetched() {
		return ""
	}
	return "/bin/sh " + fetchFile + " gate"
}

// script returns the program of fetchUnit. When it first runs, the node has no file of nodegate, so it is a shell script that needs
// only coreutils and a downloader.
func (d Delivery) script(name string, wake []string) string {
	from, how := "url='"+d.URL+"'\nsum="+d.SHA256, fetchURL
	if d.Image != "" {
		from, how = "image="+d.Image, fetchImage
	}
	text := strings.ReplaceAll(fetchScript, "@HOW@", how)
	return "# Written by `" + name + "`: change the policy, not this file.\n" + strings.NewReplacer(
		"@BIN@", d.path(), "@FROM@", from, "@DISABLED@", units.BreakGlassFile, "@INSIDE@", inImage, "@UNITS@", strings.Join(wake, " "),
	).Replace(text)
}

// unit returns the unit that fetches the binary. It is ordered after the network, and nothing is ordered after it: nodegate-apply
// comes before the network, and a cycle would make systemd drop one of them. kubelet is held by its own gate, which systemd starts
// again and again. The unit is not a oneshot: systemd before 244 does not load a oneshot with Restart=.
func (d Delivery) unit(name string) string {
	after := "network-online.target"
	if d.Image != "" {
		after += " containerd.service"
	}
	return "# Written by `" + name + "`: change the policy, not this file.\n" + `
[Unit]
Description=Fetch nodegate
Wants=network-online.target
After=` + after + `
StartLimitIntervalSec=0

[Service]
RemainAfterExit=yes
ExecStart=/bin/sh ` + fetchFile + ` fetch
RuntimeMaxSec=300s
Restart=on-failure
RestartSec=5s

[Install]
WantedBy=multi-user.target
`
}

// onlyIfRight keeps a unit from running an unverified binary: the unit is skipped. systemd before 244 ignores ExecCondition=; there
// the unit fails.
const onlyIfRight = "[Service]\nExecCondition=/bin/sh " + fetchFile + " check\nExecStartPre=/bin/sh " + fetchFile + " check\n"
