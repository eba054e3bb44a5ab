# What rises while you look: every one of these reads twice, a tenth of a second apart.

check "conntrack.losses" {}
check "udp.checksum-errors" {}
check "tcp.checksum-errors" {}
check "ena.allowance" {}
