package config

import "strings"

// Unmanaged reports whether NetworkManager's list of devices names an interface. Of the properties
// that identify a device, only its name is known here. An except: entry takes precedence.
func Unmanaged(specs []string, name string) bool {
	found := false
	for _, spec := range specs {
		spec, except := strings.CutPrefix(spec, "except:")
		pattern, byName := strings.CutPrefix(spec, "interface-name:")
		exact, isExact := strings.CutPrefix(pattern, "=")
		switch {
		case spec == "*", byName && isExact && exact == name, byName && !isExact && match(strings.TrimPrefix(pattern, "~"), name):
			if except {
				return false
			}
			found = true
		}
	}
	return found
}
