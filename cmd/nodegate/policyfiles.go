package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nodegate/internal/host"
	"nodegate/internal/host/file"
	"nodegate/policy"
	"nodegate/units"
)

// policyFiles returns the policy of --policy, else the installed policy, else the
// built-in one.
func (o *policyInput) policyFiles(h *host.Host) ([]policy.File, error) {
	files, err := o.anyPolicy(h)
	if err != nil {
		return nil, err
	}
	return files, o.trust(h, files)
}

func (o *policyInput) anyPolicy(h *host.Host) ([]policy.File, error) {
	if len(o.policies) > 0 {
		return readPoliciesAndBases(o.policies)
	}
	files, err := installedPolicy(h)
	if err != nil || len(files) > 0 {
		return files, err
	}
	// On a machine with nodegate installed, a missing policy is an error: otherwise
	// the built-in policy would silently replace it.
	for _, name := range units.InForce() {
		installed, err := h.Files.Exists(name)
		if installed || err != nil && !errors.Is(err, host.ErrNotRecorded) {
			mend := "run `nodegate install --policy FILE`"
			if fetched, _ := h.Files.Exists(units.FetchFile); fetched || name != units.JournalFile {
				mend = "export it again, because this node's nodegate comes from an export"
			}
			return nil, errors.Join(err, fmt.Errorf("nodegate is installed in %s, but %s has no policy; restore the policy, or %s",
				h.Root, units.PolicyDir, mend))
		}
	}
	builtin, err := policy.Builtin("kubernetes")
	return []policy.File{builtin}, err
}

// installedPolicy returns the files of the root's policy directory. They are read
// through the host, so that a symbolic link in an image cannot lead out of it.
func installedPolicy(h *host.Host) ([]policy.File, error) {
	found, err := h.ReadFiles(units.PolicyDir, policy.IsPolicyFile)
	if errors.Is(err, fs.ErrNotExist) { // the directory, or the target of a dangling link in it
		there, existsErr := h.Files.Exists(units.PolicyDir)
		if existsErr == nil && !there || errors.Is(existsErr, host.ErrNotRecorded) {
			return nil, nil
		}
	}
	if errors.Is(err, host.ErrNotRecorded) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the installed policy: %w", err)
	}
	var files []policy.File
	for _, f := range found {
		files = append(files, policy.File{Name: strings.TrimSuffix(h.Root, "/") + f.Name, Text: f.Text})
	}
	return files, nil
}

// readPolicies reads the named files, and every *.hcl file of the
// named directories in order of their names. The error joins one message for
// each unreadable path.
func readPolicies(paths []string) ([]policy.File, error) {
	var files []policy.File
	var errs []error
	for _, p := range paths {
		found, err := readPolicy(p)
		if _, unknown := policy.Builtin(p); errors.Is(err, fs.ErrNotExist) && unknown == nil {
			errs = append(errs, fmt.Errorf("%s is a built-in policy, not a file; write a policy with: use %[1]q {}", p))
		} else if err != nil {
			errs = append(errs, fmt.Errorf("reading policy: %w", err))
		}
		files = append(files, found...)
	}
	return files, errors.Join(errs...)
}

// readPoliciesAndBases also reads the files that use blocks of the policies name.
func readPoliciesAndBases(paths []string) ([]policy.File, error) {
	files, err := readPolicies(paths)
	for err == nil {
		names := slices.DeleteFunc(policy.Bases(files), func(name string) bool {
			_, err := os.Stat(name)
			return errors.Is(err, fs.ErrNotExist) // the policy's diagnostics name the use block
		})
		if len(names) == 0 {
			break
		}
		var bases []policy.File
		bases, err = readPolicies(names)
		files = append(files, bases...)
	}
	return files, err
}

func readPolicy(p string) ([]policy.File, error) {
	if info, err := os.Stat(p); err != nil || !info.IsDir() {
		text, err := file.ReadShown(p, policy.MaxFileSize)
		if err != nil {
			return nil, err
		}
		return []policy.File{{Name: p, Text: text}}, nil
	}
	read := func(name string) ([]byte, error) { return file.ReadShown(name, policy.MaxFileSize) }
	open := func() (*os.File, error) { return file.OpenDir(p) }
	found, err := file.ReadDir(filepath.Clean(p), open, file.ListDir, policy.IsPolicyFile, read)
	if err == nil && found == nil {
		err = fmt.Errorf("%s: the directory has no *.hcl file; add one, name a file, or write --root for a machine's file tree", p)
	}
	var files []policy.File
	for _, f := range found {
		files = append(files, policy.File{Name: f.Name, Text: f.Text})
	}
	return files, err
}
