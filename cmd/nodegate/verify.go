package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"aead.dev/minisign"
	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/internal/signature"
)

// maxKey limits the file of a public key, in bytes.
const maxKey = 64 << 10

func newVerify() *cobra.Command {
	var keyFile string
	c := &cobra.Command{
		Use:   "verify --key FILE DIR|SHA256SUMS [NAME]...",
		Short: "Prove that downloaded files are those that were signed",
		Long: `Verify checks the signature of SHA256SUMS, which is beside it as
SHA256SUMS.minisig, and then the sum of each file that it names; with NAMEs, only
of those files. Without NAMES it also checks the provenance, where there is one:
its signature, and that it speaks of the same files. Get the public key from
another place than the files. The signature is minisign's: "minisign -Vm
SHA256SUMS -p FILE && sha256sum -c SHA256SUMS" does the same with the sums.

Exit status: 0 all is as signed, 1 something is not, 2 wrong call or no list of
sums, 3 a file could not be read.`,
		Example: `  nodegate verify --key nodegate.pub dist/
  nodegate verify --key nodegate.pub SHA256SUMS nodegate-linux-amd64`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if keyFile == "" {
				return errors.New("verify needs the signer's public key: --key FILE")
			}
			var key minisign.PublicKey
			text, err := file.ReadInput(keyFile, maxKey)
			if err == nil {
				err = key.UnmarshalText(text)
			}
			if err != nil {
				return fmt.Errorf("reading the public key %s: %w", keyFile, err)
			}
			dir := args[0]
			if filepath.Base(dir) == signature.ListName {
				dir = filepath.Dir(dir)
			}
			list, err := signature.Read(dir, key)
			if errors.Is(err, signature.ErrDiffers) {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %v\n", err)
				return exit(exitFail)
			}
			if err != nil {
				return err
			}
			if list, err = chosen(list, args[1:]); err != nil {
				return err
			}
			if err := checkSums(c, dir, list, key); err != nil || len(args) > 1 {
				return err
			}
			return checkProvenance(c, dir, list, key)
		},
	}
	c.Flags().StringVar(&keyFile, "key", "", "the signer's public key `FILE`, as minisign writes it")
	return c
}

// chosen returns the sums of the named files, or all.
func chosen(list []signature.Sum, names []string) ([]signature.Sum, error) {
	if len(names) == 0 {
		return list, nil
	}
	var some []signature.Sum
	for _, n := range names {
		i := slices.IndexFunc(list, func(s signature.Sum) bool { return s.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("%s names no file %q", signature.ListName, n)
		}
		some = append(some, list[i])
	}
	return some, nil
}

func checkSums(c *cobra.Command, dir string, list []signature.Sum, key minisign.PublicKey) error {
	code := exitPass
	for _, s := range list {
		err := signature.Check(dir, s)
		if err == nil {
			continue
		}
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: %v\n", err)
		switch {
		case errors.Is(err, signature.ErrDiffers):
			code = exitFail // whatever cannot be read beside it
		case code == exitPass:
			code = exitUnknown
		}
	}
	if code != exitPass {
		return exit(code)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "ok: %s, signed by the key %016X\n", report.Count(len(list), "file"), key.ID())
	return err
}

// checkProvenance prints how the release was made, where it says so.
func checkProvenance(c *cobra.Command, dir string, list []signature.Sum, key minisign.PublicKey) error {
	if !slices.ContainsFunc(list, func(s signature.Sum) bool { return s.Name == signature.ProvenanceName }) {
		return nil
	}
	s, err := signature.Provenance(dir, key, list)
	if errors.Is(err, signature.ErrDiffers) {
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: %v\n", err)
		return exit(exitFail)
	}
	if err != nil {
		return err
	}
	commit := "no commit"
	for _, r := range s.Predicate.BuildDefinition.ResolvedDependencies {
		if r.Digest["gitCommit"] != "" {
			commit = "commit " + r.Digest["gitCommit"]
		}
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "provenance: %s from %s, by %s\n", s.Predicate.BuildDefinition.ExternalParameters["VERSION"], commit,
		s.Predicate.RunDetails.Builder.ID)
	return err
}
