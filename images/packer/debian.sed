# Converts packer.pkr.hcl for Debian's own Packer (1.6.6), whose builders are built in. That version
# supports neither the metadata options nor the public address of the build host, so only the networks
# in ssh_from may reach SSH.
/^packer {/,/^}/d
/^  metadata_options {/,/^  }/d
/^  imds_support /d
/^  temporary_security_group_source_public_ip /d
/^  temporary_security_group_source_cidrs /s/= .*/= concat(["127.0.0.1\/32"], local.ssh_from)/
