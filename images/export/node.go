package export

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strings"

	"nodegate/units"
)

// node is what a carrier that brings nodegate puts onto a machine.
type node struct {
	files  []units.File // in the order in which they are written
	units  []service
	dropIn units.File // the gate; it is among files
}

type service struct{ name, text string }

const systemDir = "/etc/systemd/system/"

// node is the installation, taken apart for targets that want units and files
// each in their place. What nobody needs where another tool enables the units,
// the links, is left out.
func (in Input) node(format string) (node, error) {
	name := command(format)
	by := units.Delivery{Name: name, Path: in.Delivery.Path, Gate: in.Delivery.gate()}
	all, err := units.Files(in.Policy, in.Texts, units.DeliveredBy(by))
	if err != nil {
		return node{}, err
	}
	var n node
	for _, f := range all {
		switch {
		case f.Target != "":
		case path.Dir(f.Path)+"/" == systemDir:
			n.units = append(n.units, service{path.Base(f.Path), string(f.Content)})
		default:
			n.files = append(n.files, f)
		}
	}
	i := slices.IndexFunc(n.files, func(f units.File) bool { return f.Path == systemDir+in.Policy.Gate.Unit+".d/10-nodegate.conf" })
	if i < 0 {
		return node{}, errors.New("the units have no drop-in for the gate")
	}
	n.dropIn = n.files[i]
	if in.Delivery.fetched() {
		n.addFetch(name, in.Delivery)
	}
	return n, nil
}

// addFetch puts the fetching unit first, and its condition before every other.
func (n *node) addFetch(name string, d Delivery) {
	var wake []string
	var conditions []units.File
	for _, u := range n.units {
		wake = append(wake, u.name)
		if strings.Contains(u.text, "="+d.path()+" ") {
			conditions = append(conditions, units.File{Path: systemDir + u.name + ".d/10-nodegate-fetch.conf", Mode: 0o644,
				Content: []byte(onlyIfRight)})
		}
	}
	n.units = append([]service{{fetchUnit, d.unit(name)}}, n.units...)
	first := append([]units.File{{Path: fetchFile, Mode: 0o755, Content: []byte(d.script(name, wake))}}, conditions...)
	n.files = append(first, n.files...)
}

// enabled reports whether the unit starts with the machine. A timer starts the other ones: systemctl says of such a unit that it is
// not meant to be enabled.
func (s service) enabled() bool { return strings.Contains(s.text, "\n[Install]\n") }

// enabled are the names of the units that start with the machine.
func (n node) enabled() []string {
	var all []string
	for _, u := range n.units {
		if u.enabled() {
			all = append(all, u.name)
		}
	}
	return all
}

// kubeletOnly is the lack of a target whose kubelet is always kubelet.service.
func kubeletOnly(in Input) []Lack {
	g := in.Policy.Gate
	if g.Unit == "kubelet.service" {
		return nil
	}
	return []Lack{{"gate", "this target's kubelet is kubelet.service, the policy's gate holds " + g.Unit, g.Range}}
}

// lines are the lines of a text, each without its end.
func lines(text []byte) []string {
	return strings.Split(string(bytes.TrimSuffix(text, []byte("\n"))), "\n")
}
