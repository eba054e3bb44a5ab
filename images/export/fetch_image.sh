# containerd verified the image's digest during the pull; the checksum of the copied binary is kept for later checks.
kept=/var/lib/nodegate-fetch

# right FILE: FILE came from this image and has not changed since.
right() { [ -f "$1" ] && [ "$(cat $kept 2>/dev/null)" = "$image $(sum_of "$1")" ]; }

# settle FILE: store the checksum, so that right accepts the file in its final place.
settle() { echo "$image $(sum_of "$1")" >$kept; }

bring() {
	command -v ctr >/dev/null || { say "held: ctr of containerd is not here to pull $image; tried again every 5 s"; return 1; }
	ctr -n nodegate images pull "$image" >/dev/null || { say "held: could not pull $image; tried again every 5 s"; return 1; }
	at=$(mktemp -d /run/nodegate-image.XXXXXX) || return 1
	if ctr -n nodegate images mount "$image" "$at" >/dev/null; then
		cp "$at@INSIDE@" "$1"
		copied=$?
		[ "$copied" = 0 ] || [ ! -f "$at@INSIDE@" ] || copied=unwritten
		ctr -n nodegate images unmount --rm "$at" >/dev/null
	fi
	rmdir "$at"
	[ "${copied:-1}" != unwritten ] || { full "$1"; return 1; }
	[ "${copied:-1}" = 0 ] || { say "held: no @INSIDE@ could be copied out of $image; tried again every 5 s"; return 1; }
}
