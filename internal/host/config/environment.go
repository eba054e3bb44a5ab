package config

import "strings"

// environmentFile returns the variables of a file as systemd reads it (src/basic/env-file.c, systemd.exec(5)). It is no unit: a value in
// quotes goes over several lines, with what looks like a comment there. A line that assigns nothing is left out.
func environmentFile(text string) map[string]string {
	variables := map[string]string{}
	for {
		text = strings.TrimLeft(text, space)
		line, rest, more := strings.Cut(text, "\n")
		name, _, assigns := strings.Cut(line, "=")
		if comment := line != "" && strings.IndexByte("#;", line[0]) >= 0; assigns && !comment {
			variables[strings.TrimRight(name, space)], rest = environmentValue(text[len(name)+1:])
		} else if !more {
			return variables
		}
		text = rest
	}
}

// environmentValue returns the value that a text begins with, and what comes after its line. In double quotes a backslash is one unless
// it is before a character that it takes the meaning of, in single quotes always.
func environmentValue(text string) (value, rest string) {
	var b strings.Builder
	var quote byte
	begun, end := false, 0 // outside quotes white space at both ends is none of the value's
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			begun = begun || quote == 0
			if text[i] == '\n' {
				continue // joins the next line
			}
			if quote == '"' && strings.IndexByte("\"\\`$", text[i]) < 0 {
				b.WriteByte(c)
			}
			b.WriteByte(text[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == '\n':
			return b.String()[:end], text[i+1:]
		case strings.IndexByte(space, c) >= 0:
			if begun {
				b.WriteByte(c)
			}
			continue
		case !begun && (c == '"' || c == '\''):
			quote = c
		default:
			begun = true
			b.WriteByte(c)
		}
		end = b.Len()
	}
	return b.String()[:end], ""
}
