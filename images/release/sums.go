package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// sign signs the list with minisign(1). Both comments are given, because its own ones contain the time of the signature.
func (r release) sign() error {
	key := os.Getenv("NODEGATE_SIGNING_KEY")
	if key == "" {
		fmt.Println("not signed: NODEGATE_SIGNING_KEY names no secret key of minisign")
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
