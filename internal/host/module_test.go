package host_test

import (
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
)

// TestModulePackage: the package must exist for that kernel.
func TestModulePackage(t *testing.T) {
	for _, c := range []struct{ osRelease, release, want string }{
		{"ID=rhel", "5.14.0-503.el9.x86_64", "kernel-modules-extra-5.14.0-503.el9.x86_64"},
		{"ID=rhel", "5.14.0-503.el9.x86_64+rt", "kernel-rt-modules-extra-5.14.0-503.el9.x86_64"},
		{"ID=rhel", "5.14.0-503.el9.aarch64+64k", "kernel-64k-modules-extra-5.14.0-503.el9.aarch64"},
		{"ID=ol\nID_LIKE=fedora", "5.15.0-300.163.18.el9uek.x86_64", "kernel-uek-modules-extra-5.15.0-300.163.18.el9uek.x86_64 or " +
			"kernel-uek-modules-extra-netfilter-5.15.0-300.163.18.el9uek.x86_64"},
		{"ID=amzn\nID_LIKE=fedora", "6.1.141-165.249.amzn2023.x86_64", "kernel-modules-extra-6.1.141-165.249.amzn2023.x86_64"},
		{"ID=amzn\nID_LIKE=fedora", "6.12.37-61.105.amzn2023.x86_64", "kernel6.12-modules-extra-6.12.37-61.105.amzn2023.x86_64"},
		{"ID=ubuntu\nID_LIKE=debian", "6.8.0-31-generic", "linux-modules-6.8.0-31-generic and linux-modules-extra-6.8.0-31-generic"},
		{"ID=debian", "6.1.0-28-amd64", "linux-image-6.1.0-28-amd64"},
		{"ID=sles\nID_LIKE=suse", "6.4.0-150600.23-default", "the package for kernel 6.4.0-150600.23-default"},
	} {
		h := (&hosttest.Machine{Files: map[string]string{"/etc/os-release": c.osRelease + "\n"}}).Host()
		assert.Equal(t, h.ModulePackage(c.release), c.want, "%s", c.release)
	}
}
