package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A bootable disk has one partition for both kinds of firmware, and one with the tree.
const (
	firstStart, firstSize = 2048, 65536 // sectors of 512 bytes
	treeStart             = firstStart + firstSize
	treeSize              = 1 << 30 // bytes; the tree takes about 350 MB of it
)

// layout creates the first partition: SYSLINUX for BIOS, systemd-boot for UEFI, and the kernel and initrd for both.
const layout = `
mount -t proc proc /proc # of this script's own process namespace: syslinux looks there
cd "$DIR"
truncate -s $((FIRST_SIZE * 512)) first
mkfs.vfat first >/dev/null
mmd -i first ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries
mcopy -i first /usr/lib/systemd/boot/efi/systemd-bootx64.efi ::/EFI/BOOT/BOOTX64.EFI
mcopy -i first "$KERNEL" ::/vmlinuz
mcopy -i first "$INITRD" ::/initrd.img
printf 'timeout 0\n' | mcopy -i first - ::/loader/loader.conf
printf 'title node\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n' "$WORDS" | mcopy -i first - ::/loader/entries/node.conf
printf 'DEFAULT node\nLABEL node\nLINUX /vmlinuz\nAPPEND initrd=/initrd.img %s\n' "$WORDS" | mcopy -i first - ::/syslinux.cfg
syslinux --install first
sfdisk --quiet "$DISK" <<END
label: gpt
start=$FIRST_START, size=$FIRST_SIZE, type=uefi, attrs=LegacyBIOSBootable
start=$TREE_START, type=linux
END
dd if=/usr/lib/syslinux/mbr/gptmbr.bin of="$DISK" conv=notrunc bs=440 count=1 status=none
dd if=first of="$DISK" conv=notrunc,sparse bs=512 seek=$FIRST_START status=none
mkfs.ext4 -q -F -E "offset=$((TREE_START * 512)),lazy_itable_init=1,lazy_journal_init=1" -d "$TREE" "$DISK" "$((TREE_SIZE / 1024))k"
rm first
`

// MakeBootable makes a disk of the tree that boots by itself under BIOS and UEFI. words are added to the kernel's command line.
func (b *Base) MakeBootable(ctx context.Context, tree, disk, words string) error {
	f, err := os.OpenFile(disk, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(treeStart*512+treeSize+(1<<20)), f.Close())
	}
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	_, err = runProgram(ctx, copyTime, []string{
		"DIR=" + filepath.Dir(disk), "DISK=" + disk, "TREE=" + tree, "KERNEL=" + b.Kernel, "INITRD=" + b.Initrd,
		"WORDS=root=/dev/vda2 rw " + words, "MTOOLS_SKIP_CHECK=1",
		fmt.Sprintf("FIRST_START=%d", firstStart), fmt.Sprintf("FIRST_SIZE=%d", firstSize), fmt.Sprintf("TREE_START=%d", treeStart),
		fmt.Sprintf("TREE_SIZE=%d", treeSize),
	}, "sh", "-euc", layout)
	return err
}

// Change runs commands of debugfs on the tree of a bootable disk.
func Change(ctx context.Context, disk, commands string) error {
	script := `printf '%s' "$COMMANDS" | debugfs -w -f - "$DISK?offset=$OFFSET" 2>&1 | tee /dev/stderr |
		{ ! grep -iE 'not found|denied|invalid|usage'; }`
	env := []string{"DISK=" + disk, "COMMANDS=" + commands, fmt.Sprintf("OFFSET=%d", treeStart*512)}
	_, err := runProgram(ctx, copyTime, env, "sh", "-euc", script)
	return err
}
