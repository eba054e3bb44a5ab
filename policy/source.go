package policy

import "fmt"

// Source returns the file and line that asks for a requirement, and those of the
// override that changed it.
func (m Metadata) Source() string {
	if m.Range.Filename == "" {
		return ""
	}
	s := fmt.Sprintf("%s:%d", m.Range.Filename, m.Range.Start.Line)
	if m.Override.Filename != "" {
		s += fmt.Sprintf(", overridden at %s:%d", m.Override.Filename, m.Override.Start.Line)
	}
	return s
}
