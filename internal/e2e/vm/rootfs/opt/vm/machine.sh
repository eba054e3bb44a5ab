# Records the state of the machine, to compare it with another boot. Sourced after lib.sh.

pictures=/var/lib/vm/pictures

# volatile: files that change from boot to boot anyway, as a pattern of grep -E for "PATH ...".
volatile='^/(tmp|var/tmp|var/log|var/lib/vm|var/cache/ldconfig|var/lib/systemd/random-seed|var/lib/systemd/timers|var/lib/systemd/catalog)(/[^ ]*)? '

# counters: sysctls that count, are random, or that the kernel computes from the memory that is free at boot, as a pattern of awk. Two
# boots usually reveal them, but sometimes they are equal by accident.
counters='^(fs[.](dentry-state|file-nr|file-max|inode-nr|inode-state)|kernel[.](ns_last_pid|pty[.]nr|random[.].*)|vm[.](user|admin)_reserve_kbytes|vm[.]min_free_kbytes|net[.]ipv4[.](tcp|udp)_mem)$'

# picture N: record the modules and sysctls.
picture() {
	within 120 settled
	udevadm settle
	mkdir -p "$pictures/$1"
	cut -d' ' -f1 /proc/modules | sort >"$pictures/$1/modules"
	sysctl -a 2>/dev/null | sort >"$pictures/$1/sysctls"
	echo "$(uptime_s): picture $1: $(wc -l <"$pictures/$1/modules") modules, $(wc -l <"$pictures/$1/sysctls") sysctls"
}

# picture_tree N: record the file tree: paths, types, modes, owners, targets of links, checksums.
picture_tree() {
	{
		find / -xdev -mindepth 1 -printf '%p %y %m %U:%G %l\n'
		find / -xdev -type f -print0 | xargs -0 sha256sum | sed 's/^\([0-9a-f]*\)  \(.*\)/\2 \1/'
	} | grep -Ev "$volatile" | sort >"$pictures/$1/tree"
	lines=$(wc -l <"$pictures/$1/tree")
	[ "$lines" -gt 10000 ] || die "only $lines lines of tree: the picture is not whole"
	echo "$(uptime_s): picture $1: $lines lines of tree"
}

same_tree() { diff -u "$pictures/$1/tree" "$pictures/$2/tree" >&2 || die "the tree differs"; }

same_modules() { diff -u "$pictures/$1/modules" "$pictures/$2/modules" >&2 || die "other modules are loaded"; }

# same_sysctls A B C: C has the keys and values of B, except for counters and for sysctls that already differed between A and B.
same_sysctls() {
	diff "$pictures/$1/sysctls" "$pictures/$2/sysctls" | sed -n 's/^[<>] \([^ ]*\) = .*/\1/p' | sort -u >"$pictures/own"
	[ -s "$pictures/own" ] || die "no sysctl differs between two boots, not even kernel.random.boot_id"
	for picture in "$2" "$3"; do
		awk -v counters="$counters" 'NR == FNR { own[$1]; next } !($1 in own) && $1 !~ counters' "$pictures/own" "$pictures/$picture/sysctls" >"$pictures/$picture/steady"
	done
	echo "sysctls that change by themselves: $(tr '\n' ' ' <"$pictures/own")"
	diff -u "$pictures/$2/steady" "$pictures/$3/steady" >&2 || die "the sysctls differ"
}
