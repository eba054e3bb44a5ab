package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"

	"nodegate/internal/signature"
)

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
	return put(filepath.Join(r.dir, signature.ListName), []byte(list.String()), 0o644)
}

// sign signs the list and the provenance, so that minisign(1) and `nodegate verify` prove it.
func (r release) sign() error {
	file := os.Getenv("NODEGATE_SIGNING_KEY")
	if file == "" {
		fmt.Println("not signed: NODEGATE_SIGNING_KEY names no secret key of minisign")
		return nil
	}
	key, err := secretKey(file, os.Getenv("NODEGATE_SIGNING_PASSWORD"))
	if err != nil {
		return fmt.Errorf("reading the secret key %s: %w", file, err)
	}
	for _, name := range []string{signature.ListName, signature.ProvenanceName} {
		content, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		hashed := minisign.NewReader(bytes.NewReader(content))
		if _, err := io.Copy(io.Discard, hashed); err != nil {
			return err
		}
		comment := fmt.Sprintf("nodegate %s timestamp:%d", r.version, r.time.Unix())
		signed := hashed.SignWithComments(key, comment, "minisign signature of nodegate's "+name)
		if err := put(filepath.Join(r.dir, name+signature.Suffix), signed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func secretKey(file, password string) (minisign.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return minisign.PrivateKey{}, err
	}
	if minisign.IsEncrypted(text) {
		return minisign.DecryptKey(password, text)
	}
	var key minisign.PrivateKey
	return key, key.UnmarshalText(text)
}
