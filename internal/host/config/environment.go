package config

import "strings"

// environmentFile returns the variables in a file as systemd reads it (src/basic/env-file.c,
// systemd.exec(5)). The syntax differs from a unit's: a quoted value may span several lines, and a
// line in it that looks like a comment is part of the value. Lines without an assignment are
// skipped.
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

// environmentValue returns the value at the start of text, and the rest of the text after its line.
// In double quotes a backslash is literal unless it precedes a character that it escapes; in single
// quotes it is always literal.
func environmentValue(text string) (value, rest string) {
	var b strings.Builder
	var quote byte
	begun, end := false, 0 // unquoted white space at both ends does not belong to the value
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
