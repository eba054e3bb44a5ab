package proxy

import "strings"

// tableText returns one table of a save, including its COMMIT.
func tableText(text, name string) string {
	_, rest, _ := strings.Cut(text, "*"+name+"\n")
	body, _, _ := strings.Cut(rest, "\nCOMMIT\n")
	return "*" + name + "\n" + body + "\nCOMMIT\n"
}

// cutTable returns a save without one table.
func cutTable(text, name string) string {
	return strings.Replace(text, tableText(text, name), "", 1)
}
