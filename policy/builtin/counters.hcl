# Counters that must not rise: each of these checks reads its counters twice, a tenth of a second apart.

check "conntrack.losses" {}
check "udp.checksum-errors" {}
check "tcp.checksum-errors" {}
check "ena.allowance" {}
