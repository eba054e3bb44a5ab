// Package signature proves that the files of a release are those that its makers
// signed. There are two steps: a minisign signature over a list of SHA-256 sums, and
// the sums.
package signature

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// The name of the list in a release's folder, and what the name of a signature adds.
const (
	ListName = "SHA256SUMS"
	Suffix   = ".minisig"
)

// maxList limits what is read before anything is proven.
const maxList = 1 << 20

// ErrDiffers is the error of a list or a file that differs from what was signed.
var ErrDiffers = errors.New("not what was signed")

// Sum is one line of a list.
type Sum struct{ Name, SHA256 string }

// Read returns the list in dir after proving its signature by the key. It parses
// nothing of an unproven list. The error wraps ErrDiffers where the signature
// belongs to another key or to another list.
func Read(dir string, key minisign.PublicKey) ([]Sum, error) {
	list, err := readSigned(dir, ListName, key)
	if err != nil {
		return nil, err
	}
	return parse(filepath.Join(dir, ListName), string(list))
}

// readSigned returns a file in dir after proving its signature by the key.
func readSigned(dir, of string, key minisign.PublicKey) ([]byte, error) {
	full := filepath.Join(dir, of)
	content, err := file.Read(full, maxList)
	if err != nil {
		return nil, err
	}
	name := full + Suffix
	text, err := file.Read(name, maxList)
	if err != nil {
		return nil, err
	}
	var s minisign.Signature
	if err := s.UnmarshalText(text); err != nil {
		return nil, fmt.Errorf("%s: no minisign signature: %w; download it again", name, err)
	}
	if s.KeyID != key.ID() {
		return nil, fmt.Errorf("%s: signed by the key %016X, and the key given is %016X: %w", name, s.KeyID, key.ID(), ErrDiffers)
	}
	if !minisign.Verify(key, content, text) {
		return nil, fmt.Errorf("%s: the signature does not match: the file or the signature was changed: %w", full, ErrDiffers)
	}
	return content, nil
}

// Check compares one file in dir with its sum. The error wraps ErrDiffers where the
// file is changed or missing; after any other error the result is unknown.
func Check(dir string, s Sum) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	full := filepath.Join(dir, s.Name)
	f, err := root.OpenFile(s.Name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // a named pipe must not block
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: missing: %w", full, ErrDiffers)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", full, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return fmt.Errorf("%s: %w", full, err)
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a file: %w", full, ErrDiffers)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("reading %s: %w", full, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != s.SHA256 {
		return fmt.Errorf("%s: changed: its sum is %s, %s says %s: %w", full, got, ListName, s.SHA256, ErrDiffers)
	}
	return nil
}

// parse reads the lines that sha256sum writes. Names are those of files in the same
// folder: a signed list with other paths was signed by mistake. The error names
// every wrong line.
func parse(file, text string) ([]Sum, error) {
	var list []Sum
	var errs []error
	lines := map[string]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		s, err := parseLine(strings.TrimSuffix(line, "\n"))
		if first := lines[s.Name]; err == nil && first > 0 {
			err = fmt.Errorf("%s is on line %d already", s.Name, first)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, n, err))
			continue
		}
		lines[s.Name] = n
		list = append(list, s)
	}
	if n == 0 {
		errs = append(errs, fmt.Errorf("%s: empty; it names no file", file))
	}
	return list, errors.Join(errs...)
}

func parseLine(line string) (Sum, error) {
	sum, name, found := strings.Cut(line, " ")
	b, err := hex.DecodeString(sum)
	isSum := err == nil && len(b) == sha256.Size && sum == strings.ToLower(sum)
	if !found || !isSum || !strings.HasPrefix(name, " ") && !strings.HasPrefix(name, "*") {
		return Sum{}, errors.New(`want "SHA256  NAME" as sha256sum writes it`)
	}
	name = name[1:]
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00\r") {
		return Sum{}, fmt.Errorf("%q is not the name of a file in the folder of the list", name)
	}
	return Sum{name, sum}, nil
}
