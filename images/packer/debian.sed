# Makes of packer.pkr.hcl what Debian's own Packer (1.6.6) reads: it has its builders built in, and
# knows neither how instances answer metadata requests nor the address that it builds from: only
# whom ssh_from names is let in.
/^packer {/,/^}/d
/^  metadata_options {/,/^  }/d
/^  imds_support /d
/^  temporary_security_group_source_public_ip /d
/^  temporary_security_group_source_cidrs /s/= .*/= concat(["127.0.0.1\/32"], local.ssh_from)/
