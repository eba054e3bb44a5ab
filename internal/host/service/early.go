package service

import (
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// Early is a command that runs before the gate and leaves something running: kubelet or a container could then run on a node that the
// gate still holds.
type Early struct {
	Entry config.Entry
	What  string // completes "it ...": "starts a container in the background"
}

// BeforeGate returns the commands before the gate that leave a container running. A drop-in's ExecStartPre= comes after those of the unit
// itself. A command that systemd waits for, as a container that copies files and ends, is not one of them. gated is false if the unit
// has no gate.
func (u Unit) BeforeGate() (all []Early, gated bool) {
	const options = `(?:-\S+ (?:[^-\s]\S* )?)*?` // each with or without a value
	detached := regexp.MustCompile(`^[-:+!@]*(?:\S*/)?(?:docker|podman|nerdctl|ctr) ` + options + `(?:container )?run ` + options +
		`(?:-[itPq]*d[itPq]*|--detach(?:=true)?) `)
	for _, e := range slices.Concat(u.list("Service", "ExecCondition"), u.list("Service", "ExecStartPre")) {
		if isGate(e) {
			return all, true
		}
		if detached.MatchString(strings.Join(strings.Fields(e.Value), " ")) {
			all = append(all, Early{e, "starts a container in the background"})
		}
	}
	return all, false
}

// isGate reports whether a command is nodegate's gate.
func isGate(e config.Entry) bool { return strings.Contains(e.Value, "nodegate gate") }
