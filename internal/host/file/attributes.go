package file

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	selinuxLabel  = "security.selinux"
	attributeSize = 64 << 10 // XATTR_SIZE_MAX and XATTR_LIST_MAX of linux/limits.h
)

// CopyAttributes copies to a new file or directory, open as to, the labels of security modules, the ACLs and the users' extended
// attributes of the one that it is about to replace, open as from. It leaves out attributes that depend on the content: capabilities and
// signatures. An ACL changes the permissions, so the caller sets these afterwards.
func CopyAttributes(from, to int) error {
	names, err := attributes(from)
	for _, name := range names {
		if err == nil && isCopied(name) {
			err = copyAttribute(name, from, to)
		}
	}
	return err
}

// Label gives a new file or directory, open as to, the SELinux label of its directory if it has none: a kernel without SELinux does
// not label the files of an image, and the image's own SELinux would then deny all access to them.
func Label(dir, to int) error {
	if _, err := attribute(to, selinuxLabel); !errors.Is(err, unix.ENODATA) {
		return nil
	}
	return copyAttribute(selinuxLabel, dir, to)
}

// LabelLink is Label for a symbolic link, which cannot be opened for this.
func LabelLink(dir int, name string) error {
	label, err := attribute(dir, selinuxLabel)
	if err != nil {
		return nil
	}
	link := fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
	if _, err := unix.Lgetxattr(link, selinuxLabel, nil); errors.Is(err, unix.ENODATA) {
		return settable(selinuxLabel, unix.Lsetxattr(link, selinuxLabel, label, 0))
	}
	return nil
}

func isCopied(name string) bool {
	return slices.Contains([]string{selinuxLabel, "security.SMACK64", "system.posix_acl_access", "system.posix_acl_default"}, name) ||
		strings.HasPrefix(name, "user.")
}

// attributes returns the names of a file's extended attributes; none if the file system has no such attributes.
func attributes(fd int) ([]string, error) {
	// Most files have few attributes.
	for _, size := range []int{256, attributeSize} {
		b := make([]byte, size)
		n, err := unix.Flistxattr(fd, b)
		switch {
		case errors.Is(err, unix.ERANGE):
		case errors.Is(err, unix.ENOTSUP):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("listing its extended attributes: %w", err)
		default:
			return strings.FieldsFunc(string(b[:n]), func(r rune) bool { return r == 0 }), nil
		}
	}
	return nil, fmt.Errorf("listing its extended attributes: %w", unix.ERANGE)
}

func attribute(fd int, name string) ([]byte, error) {
	b := make([]byte, attributeSize)
	n, err := unix.Fgetxattr(fd, name, b)
	return b[:max(n, 0)], err
}

func copyAttribute(name string, from, to int) error {
	value, err := attribute(from, name)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the extended attribute %s: %w", name, err)
	}
	if now, err := attribute(to, name); err == nil && bytes.Equal(now, value) {
		return nil
	}
	return settable(name, unix.Fsetxattr(to, name, value, 0))
}

// settable explains the error of setting an attribute. Only a privileged process may set a label; other processes leave the label to
// the kernel.
func settable(name string, err error) error {
	if err == nil || errors.Is(err, unix.EPERM) && strings.HasPrefix(name, "security.") {
		return nil
	}
	return fmt.Errorf("setting the extended attribute %s, which the replaced file or the directory has: %w", name, err)
}
