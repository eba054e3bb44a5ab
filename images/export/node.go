package export

import (
	"errors"
	"path"
	"slices"
	"strings"

	"nodegate/units"
)

// node lists the files and units of an installation.
type node struct {
	files  []units.File // in the order in which they are written
	units  []service
	dropIn units.File // the gate's drop-in; files contains it too
}

type service struct{ name, text string }

const systemDir = "/etc/systemd/system/"

// buildNode splits the installation into units and files, for targets that list them separately. It
// leaves out symbolic links: the target enables the units itself.
func (in Input) buildNode(format string) (node, error) {
	name := commandName(format)
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
		return node{}, errors.New("the drop-in of the gate is missing from the units")
	}
	n.dropIn = n.files[i]
	if in.Delivery.fetched() {
		n.addFetch(name, in.Delivery)
	}
	return n, nil
}

// addFetch puts the unit that fetches the binary first, and adds its condition to every other unit.
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

// unitNames returns the names of the units, which all start at boot.
func (n node) unitNames() []string {
	var all []string
	for _, u := range n.units {
		all = append(all, u.name)
	}
	return all
}

// kubeletOnly returns the lack of a target whose kubelet always runs as kubelet.service.
func kubeletOnly(in Input) []Lack {
	g := in.Policy.Gate
	if g.Unit == "kubelet.service" {
		return nil
	}
	return []Lack{{"gate", "kubelet runs as kubelet.service on this target, but the policy's gate holds " + g.Unit, g.Range}}
}
