# Bakes nodegate into a machine image, with Packer 1.10 or later:
#
#   packer init . && packer build -only=amazon-ebs.node -var distribution=debian .
#   packer init . && packer build -only=qemu.node -var disk=debian.qcow2 -var ssh_key=id .
#
# docs/guides/bake-an-ami.md explains it. The build fails if `nodegate check --stage image`
# does not pass; the report is kept beside the image in any case.

packer {
  required_version = ">= 1.10.0"
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = "~> 1.3"
    }
    qemu = {
      source  = "github.com/hashicorp/qemu"
      version = "~> 1.1"
    }
  }
}

variable "nodegate" {
  type        = string
  default     = ""
  description = "The nodegate binary; the default is the one that `make dist` built for the architecture."
}

variable "policy" {
  type        = string
  default     = "policy/builtin/kubernetes.hcl"
  description = "The policy file to install."
  validation {
    condition     = regex_replace(var.policy, ".*\\.hcl$", "") == ""
    error_message = "The policy must be one file that ends in .hcl."
  }
}

variable "output" {
  type        = string
  default     = "baked"
  description = "The directory for the disk image, the manifest and the reports."
}

variable "region" {
  type        = string
  default     = "eu-central-1"
  description = "The AWS region to build in."
  validation {
    condition     = regex_replace(var.region, "^[a-z]{2}(-[a-z]+)+-[0-9]+$", "") == ""
    error_message = "The region must look like eu-central-1 or us-gov-west-1."
  }
}

variable "instance_type" {
  type        = string
  default     = ""
  description = "The type of the build instance; the default is t3.small, or t4g.small for arm64."
}

variable "distribution" {
  type        = string
  default     = "debian"
  description = "The base image: debian, ubuntu or amazon-linux-2023."
  validation {
    condition     = contains(["debian", "ubuntu", "amazon-linux-2023"], var.distribution)
    error_message = "The distribution must be debian, ubuntu or amazon-linux-2023."
  }
}

variable "architecture" {
  type        = string
  default     = "amd64"
  description = "The architecture: amd64 or arm64."
  validation {
    condition     = contains(["amd64", "arm64"], var.architecture)
    error_message = "The architecture must be amd64 or arm64."
  }
}

variable "base_name" {
  type        = string
  default     = ""
  description = "A name filter that replaces the distribution's; Packer uses the newest matching image."
}

variable "base_owner" {
  type        = string
  default     = ""
  description = "The account that owns the base image, instead of the distribution's; Debian has no account in GovCloud and China."
  validation {
    condition     = regex_replace(var.base_owner, "^([0-9]{12}|self|amazon|)$", "") == ""
    error_message = "The owner must be an account of 12 digits, self or amazon."
  }
}

variable "encrypt" {
  type        = bool
  default     = true
  description = "Encrypt the image's disk."
}

variable "kms_key" {
  type        = string
  default     = ""
  description = "The KMS key for encryption; the default is the account's EBS key."
}

variable "imdsv2_only" {
  type        = bool
  default     = true
  description = "Instances of the image, and the build instance, answer only metadata requests with a session token."
}

variable "ssh_from" {
  type        = list(string)
  default     = []
  description = "The networks that may reach the instance's SSH port during the build; the default is your own public address."
}

variable "session_manager_profile" {
  type        = string
  default     = ""
  description = "An instance profile with AmazonSSMManagedInstanceCore: SSH then uses Session Manager, and no network can reach the port."
}

variable "subnet" {
  type        = string
  default     = ""
  description = "The subnet to build in; the default is a subnet of the default VPC."
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "More tags for the image, its snapshots and the instance."
}

variable "disk" {
  type        = string
  default     = "disk.qcow2"
  description = "For qemu: the disk image to start from; it is copied, not changed."
}

variable "disk_checksum" {
  type        = string
  default     = "none"
  description = "For qemu: the checksum of that disk image, such as sha256:ABC; use none only for your own image."
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "For qemu: kvm, or tcg on hosts without KVM."
  validation {
    condition     = contains(["kvm", "tcg"], var.accelerator)
    error_message = "The accelerator must be kvm or tcg."
  }
}

variable "ssh_user" {
  type        = string
  default     = "root"
  description = "For qemu: the SSH user; root, or a user that may run sudo without a password."
}

variable "ssh_key" {
  type        = string
  default     = ""
  description = "For qemu: the file with the private key that the disk image accepts."
}

variable "qemu_args" {
  type        = list(list(string))
  default     = []
  description = "For qemu: more arguments of QEMU, such as [[\"-cdrom\", \"seed.iso\"]]."
}

locals {
  bases = {
    debian = {
      owners = { aws = "136693071363", gov = "", cn = "" }
      name   = "debian-12-${var.architecture}-*"
      user   = "admin"
    }
    ubuntu = {
      owners = { aws = "099720109477", gov = "513442679011", cn = "837727238323" }
      name   = "ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-${var.architecture}-server-*"
      user   = "ubuntu"
    }
    amazon-linux-2023 = {
      owners = { aws = "amazon", gov = "amazon", cn = "amazon" }
      name   = "al2023-ami-2023.*-kernel-*-${var.architecture == "amd64" ? "x86_64" : "arm64"}"
      user   = "ec2-user"
    }
  }
  partition = lookup({ gov = "gov", cn = "cn" }, split("-", replace(var.region, "us-gov-", "gov-"))[0], "aws")
  base      = local.bases[var.distribution]
  owner     = var.base_owner != "" ? var.base_owner : local.base.owners[local.partition]
  nodegate  = var.nodegate != "" ? var.nodegate : "dist/nodegate-linux-${var.architecture}"
  name      = "nodegate-${var.distribution}-${var.architecture}-${formatdate("YYYYMMDD-hhmmss", timestamp())}"
  tags      = merge({ Name = "nodegate-${var.distribution}", nodegate-base = var.distribution }, var.tags)
  # With Session Manager no network may reach SSH. An empty list would allow all of them, or the build host's address.
  ssh_from = var.session_manager_profile != "" ? ["127.0.0.1/32"] : var.ssh_from
  as_root  = "if [ $(id -u) = 0 ]; then {{ .Vars }} sh -eu {{ .Path }}; else sudo {{ .Vars }} sh -eu {{ .Path }}; fi"
}

# The AWS SDK finds the credentials: in the environment, a profile or a role. Packer creates the SSH key
# for this build only.
source "amazon-ebs" "node" {
  region        = var.region
  instance_type = var.instance_type != "" ? var.instance_type : var.architecture == "amd64" ? "t3.small" : "t4g.small"
  subnet_id     = var.subnet
  ami_name      = local.name
  source_ami_filter {
    filters = {
      name                = var.base_name != "" ? var.base_name : local.base.name
      architecture        = var.architecture == "amd64" ? "x86_64" : "arm64"
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
    owners      = compact([local.owner])
    most_recent = true
  }
  metadata_options {
    http_tokens = var.imdsv2_only ? "required" : "optional"
  }
  imds_support                              = var.imdsv2_only ? "v2.0" : ""
  encrypt_boot                              = var.encrypt
  kms_key_id                                = var.kms_key
  temporary_security_group_source_cidrs     = local.ssh_from
  temporary_security_group_source_public_ip = length(local.ssh_from) == 0
  ssh_interface                             = var.session_manager_profile != "" ? "session_manager" : ""
  iam_instance_profile                      = var.session_manager_profile
  ssh_username                              = local.base.user
  ssh_clear_authorized_keys                 = true
  tags                                      = local.tags
  snapshot_tags                             = local.tags
  run_tags                                  = local.tags
}

source "qemu" "node" {
  iso_url              = var.disk
  iso_checksum         = var.disk_checksum
  disk_image           = true
  format               = "qcow2"
  output_directory     = "${var.output}/disk"
  vm_name              = "node.qcow2"
  accelerator          = var.accelerator
  headless             = true
  net_device           = "virtio-net"
  disk_interface       = "virtio"
  ssh_username         = var.ssh_user
  ssh_private_key_file = var.ssh_key
  ssh_timeout          = "10m"
  shutdown_command     = "if [ $(id -u) = 0 ]; then poweroff; else sudo poweroff; fi"
  # Packer's default -netdev would expose the machine's SSH port to the whole network.
  qemuargs = concat([["-netdev", "user,id=user.0,hostfwd=tcp:127.0.0.1:{{ .SSHHostPort }}-:22"]], var.qemu_args)
}

build {
  sources = ["source.amazon-ebs.node", "source.qemu.node"]

  provisioner "shell-local" {
    inline = ["mkdir -p '${var.output}'"]
  }

  # cloud-init must finish before its state is removed.
  provisioner "shell" {
    inline = ["! command -v cloud-init || cloud-init status --wait || true", "mkdir -p nodegate-bake"]
  }

  provisioner "file" {
    source      = local.nodegate
    destination = "nodegate-bake/nodegate"
  }

  provisioner "file" {
    source      = var.policy
    destination = "nodegate-bake/${basename(var.policy)}"
  }

  # install writes nodegate into the image.
  provisioner "shell" {
    execute_command = local.as_root
    inline = [
      "chmod 0755 nodegate-bake/nodegate",
      "nodegate-bake/nodegate install --policy 'nodegate-bake/${basename(var.policy)}'",
    ]
  }

  # Remove everything that must be unique on each machine (run `nodegate explain image.identity`). The random seed
  # and the journal would otherwise be written again at shutdown. SSH host keys are kept if nothing
  # creates new ones at boot; then the check fails.
  provisioner "shell" {
    execute_command = local.as_root
    inline = [
      # cloud-init writes the hostname and the keys of the users again, from the metadata of each machine.
      "! command -v cloud-init || cloud-init clean --logs",
      "! command -v cloud-init || truncate -s 0 /etc/hostname",
      "! command -v cloud-init || for keys in /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys; do [ ! -f $keys ] || truncate -s 0 $keys; done",
      "keys=$(systemctl cat ssh.service sshd.service sshd-keygen.target 2>/dev/null | grep keygen || command -v cloud-init || true)",
      "[ -z \"$keys\" ] || rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub",
      "! systemctl --quiet is-active systemd-random-seed.service || systemctl stop systemd-random-seed.service",
      "rm -f /var/lib/systemd/random-seed /var/lib/systemd/credential.secret /boot/loader/random-seed /boot/efi/loader/random-seed /efi/loader/random-seed",
      "journalctl --relinquish-var",
      "rm -rf /var/log/journal/*",
      "rm -f /var/lib/dhcp/*.lease* /var/lib/dhclient/*.lease* /var/lib/dhcpcd/* /var/lib/NetworkManager/*.lease /var/lib/NetworkManager/secret_key",
      "rm -f /root/.*_history /home/*/.*_history /etc/nvme/hostnqn /etc/nvme/hostid",
      "rm -rf /var/lib/amazon/ssm/Vault /var/lib/amazon/ssm/registration",
      # Debian makes a new iSCSI name if the file asks for it, RHEL if the file is missing.
      "[ ! -e /etc/iscsi/initiatorname.iscsi ] || echo GenerateName=yes >/etc/iscsi/initiatorname.iscsi",
      "[ ! -e /usr/lib/systemd/system/iscsi-init.service ] || rm -f /etc/iscsi/initiatorname.iscsi",
      "! systemctl --quiet is-active rsyslog.service || systemctl stop syslog.socket rsyslog.service || true",
      "rm -f /var/log/syslog /var/log/messages /var/log/auth.log /var/log/secure /var/log/kern.log /var/log/daemon.log /var/log/user.log",
      "truncate -s 0 /etc/machine-id", # not removed: systemd would treat the boot as the first one, and reset the enabled and disabled units
      "[ -L /var/lib/dbus/machine-id ] || rm -f /var/lib/dbus/machine-id",
    ]
  }

  # Use the uploaded binary: if the base image contains the package of the same release, install makes no
  # copy of its own. The report is kept whatever its verdict is; the check below fails the build.
  provisioner "shell" {
    execute_command = local.as_root
    inline          = ["nodegate-bake/nodegate check --stage image --format json --output nodegate-bake/report.json || [ $? = 1 ] || [ $? = 3 ]"]
  }

  provisioner "file" {
    direction   = "download"
    source      = "nodegate-bake/report.json"
    destination = "${var.output}/${source.type}-report.json"
  }

  # apply proves that this kernel accepts every setting. Its changes are lost when the build machine
  # stops.
  provisioner "shell" {
    execute_command = local.as_root
    inline          = ["nodegate-bake/nodegate check --stage image", "nodegate-bake/nodegate apply", "rm -r nodegate-bake", "sync"]
  }

  post-processor "manifest" {
    output     = "${var.output}/manifest.json"
    strip_path = true
    custom_data = {
      report = "${source.type}-report.json"
    }
  }
}
