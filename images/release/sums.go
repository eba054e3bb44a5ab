package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// sumsName is the list of sums, in the form of sha256sum.
const sumsName = "SHA256SUMS"

// sums writes the sums of everything made so far, as sha256sum does.
func (r release) sums() error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(r.dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sha256Of(content), f.Name())
	}
	fmt.Print(list.String())
	return put(filepath.Join(r.dir, sumsName), []byte(list.String()), 0o644)
}

// checkKey returns an error if a release could not be signed. A build between two tags needs no key.
func (r release) checkKey() error {
	key := os.Getenv("NODEGATE_SIGNING_KEY")
	if key == "" && regexp.MustCompile(`~dev|-[0-9]+-g[0-9a-f]+|-dirty$`).MatchString(r.version) {
		return nil
	}
	if _, err := os.Stat(key); err != nil {
		return fmt.Errorf("signing %s: set NODEGATE_SIGNING_KEY to the file of the secret key, which `minisign -G` makes: %w", r.version, err)
	}
	return nil
}

// sign signs the list with minisign(1). Both comments are given, because its own ones contain the time of the signature.
func (r release) sign() error {
	key := os.Getenv("NODEGATE_SIGNING_KEY")
	if key == "" {
		fmt.Printf("not signed, because %s is not a release: NODEGATE_SIGNING_KEY is not set\n", r.version)
		return nil
	}
	file := filepath.Join(r.dir, sumsName)
	cmd := exec.Command("minisign", "-S", "-s", key, "-m", file, "-x", file+".minisig", "-c", "minisign signature of nodegate's "+sumsName,
		"-t", fmt.Sprintf("nodegate %s timestamp:%d", r.version, r.time.Unix()))
	// minisign reads the password here; it asks for none if the key is not encrypted.
	cmd.Stdin = strings.NewReader(os.Getenv("NODEGATE_SIGNING_PASSWORD") + "\n")
	if err := command(cmd); err != nil {
		return err
	}
	return os.Chmod(file+".minisig", 0o644) // whatever the umask
}
