package config

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"nodegate/internal/host/file"
)

// argument is one word of a command line, and the file from which it comes.
type argument struct{ text, file string }

func arguments(file string, words []string) (all []argument) {
	for _, w := range words {
		all = append(all, argument{w, file})
	}
	return all
}

// startCommand returns the command line that systemd builds from a unit and its drop-ins: ExecStart with its variables, as
// systemd.exec(5) and systemd.service(5) specify. unknown is the reason why it cannot be determined, or "".
func startCommand(files Files, unit []File, unitName string) (
	command []argument, environment map[string]argument, unknown string, err error,
) {
	entries, _ := ParseFiles(unit) // systemd also ignores unreadable lines
	var starts []Entry
	var environmentFiles []string
	environment = map[string]argument{}
	specifiers := Specifiers(unitName)
	for _, e := range entries {
		if e.Section != "Service" {
			continue
		}
		switch {
		case e.Key == "ExecStart" && e.Value == "":
			starts = nil
		case e.Key == "ExecStart":
			starts = append(starts, e)
		case e.Key == "Environment" && e.Value == "":
			clear(environment)
		case e.Key == "Environment":
			assignments, whole := Words(e.Value)
			if !whole { // systemd ignores a word whose quote does not end on its line
				assignments = assignments[:len(assignments)-1]
			}
			for _, assignment := range assignments {
				name, value, _ := strings.Cut(assignment, "=")
				environment[name] = argument{specifiers.Replace(value), e.File}
			}
		case e.Key == "EnvironmentFile" && e.Value == "":
			environmentFiles = nil
		case e.Key == "EnvironmentFile":
			environmentFiles = append(environmentFiles, e.Value)
		}
	}
	if len(unit) == 0 {
		return nil, nil, unitName + " does not exist", nil
	}
	if len(starts) != 1 {
		return nil, nil, fmt.Sprintf("%s has %d commands", unitName, len(starts)), nil
	}
	total := 0
	for _, pattern := range environmentFiles {
		pattern, optional := strings.CutPrefix(specifiers.Replace(pattern), "-")
		names, known, err := Matching(files, pattern)
		switch {
		case err != nil:
			return nil, nil, "", fmt.Errorf("reading the variables of %s: %w", unitName, err)
		case !known:
			return nil, nil, unitName + " reads its variables from " + pattern + ", whose directory part has wildcards; nodegate does " +
				"not expand these", nil
		}
		missing := true
		for _, name := range names {
			text, found, err := ReadIfAny(files, name)
			if err != nil {
				return nil, nil, "", fmt.Errorf("reading the variables of %s: %w", unitName, err)
			}
			total += len(text)
			if err := file.TooMuch(pattern, total, mostText); err != nil {
				return nil, nil, "", fmt.Errorf("reading the variables of %s: %w", unitName, err)
			}
			missing = missing && !found
			for variable, value := range environmentFile(string(text)) {
				environment[variable] = argument{value, name}
			}
		}
		if missing && !optional {
			return nil, nil, pattern + ", which " + unitName + " reads, is missing", nil
		}
	}
	for _, w := range SplitWords(starts[0].Value) {
		command = append(command, expandVariables(argument{specifiers.Replace(w), starts[0].File}, environment)...)
	}
	if len(command) == 0 {
		return nil, nil, unitName + " has an empty command", nil
	}
	command[0].text = strings.TrimLeft(command[0].text, "-:+!")
	return command, environment, "", nil
}

// unitCommand returns kubelet's own command line, behind wrappers, if kubelet.service runs kubelet.
func unitCommand(files Files, unit []File) (command []argument, unknown string, err error) {
	command, _, unknown, err = startCommand(files, unit, "kubelet.service")
	if unknown != "" || err != nil {
		return nil, unknown, err
	}
	command = unwrap(command)
	program := command[0].text
	hyperkube := len(command) > 1 && command[1].text == "kubelet"
	if !isKubelet(path.Base(program)) || path.Base(program) == "hyperkube" && !hyperkube {
		return nil, "kubelet.service runs " + program + ", not kubelet itself", nil
	}
	return command, "", nil
}

// Matching returns the files that match a name with wildcards, sorted as systemd reads them. A name without wildcards matches itself,
// whether it exists or not. known is false if the directory part has wildcards.
func Matching(files Files, pattern string) (names []string, known bool, err error) {
	const wild = "*?["
	dir, base := path.Dir(pattern), path.Base(pattern)
	switch {
	case strings.ContainsAny(dir, wild):
		return nil, false, nil
	case !strings.ContainsAny(base, wild):
		return []string{pattern}, true, nil
	}
	all, err := ReadDirIfAny(files, dir)
	for _, name := range all {
		if match(base, name) && (name[0] != '.' || base[0] == '.') {
			names = append(names, path.Join(dir, name))
		}
	}
	return names, true, err
}

// expandVariables replaces variables: $NAME as a whole word becomes any number of words, ${NAME} becomes part of its word.
func expandVariables(w argument, environment map[string]argument) []argument {
	if name, is := strings.CutPrefix(w.text, "$"); is && regexp.MustCompile(`^\w+$`).MatchString(name) {
		return arguments(environment[name].file, SplitWords(environment[name].text))
	}
	w.text = regexp.MustCompile(`\$\{\w+\}|\$\$`).ReplaceAllStringFunc(w.text, func(variable string) string {
		if variable == "$$" {
			return "$"
		}
		return environment[variable[2:len(variable)-1]].text
	})
	return []argument{w}
}

// SplitWords returns the words of a value, including one whose quote does not end.
func SplitWords(s string) []string {
	words, _ := Words(s)
	return words
}

// Words splits a value of a unit at white space outside quotes, and removes the quotes. whole is
// false if the quote of the last word does not end.
func Words(s string) (words []string, whole bool) {
	var w strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, r := range s {
		switch {
		case escaped:
			w.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped, begun = true, true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && strings.ContainsRune(space, r):
			if begun {
				words = append(words, w.String())
			}
			w.Reset()
			begun = false
		default:
			w.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, w.String())
	}
	return words, quote == 0
}
