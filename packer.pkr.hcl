# Bakes nodegate into a machine image:
#
#   packer init . && packer build -only=amazon-ebs.node -var distribution=debian .
#   packer build -only=qemu.node -var disk=debian.qcow2 -var ssh_key=id packer.pkr.hcl    (Debian's packer)
#
# docs/guides/bake-an-ami.md goes through it. The build fails where `nodegate check
# --stage image` does not hold; its report is kept beside the image either way.

variable "nodegate" {
  type        = string
  default     = "dist/nodegate-linux-amd64"
  description = "The nodegate binary for the image's architecture, as `make dist` makes it."
}

variable "policy" {
  type        = string
  default     = "policy/builtin/kubernetes.hcl"
  description = "The policy file that is installed."
  validation {
    condition     = regex_replace(var.policy, ".*\\.hcl(\\.json)?$", "") == ""
    error_message = "The policy is one file that ends in .hcl or .hcl.json."
  }
}

variable "output" {
  type        = string
  default     = "baked"
  description = "The folder for the disk image, the manifest and the reports."
}

variable "region" {
  type        = string
  default     = "eu-central-1"
  description = "The AWS region to build in."
  validation {
    condition     = regex_replace(var.region, "^[a-z]{2}(-[a-z]+)+-[0-9]+$", "") == ""
    error_message = "The region is spelt like eu-central-1 or us-gov-west-1."
  }
}

variable "instance_type" {
  type        = string
  default     = "t3.small"
  description = "The type of the instance that the image is made on; of the image's architecture."
}

variable "distribution" {
  type        = string
  default     = "debian"
  description = "The base image: debian, ubuntu or amazon-linux-2023."
  validation {
    condition     = contains(["debian", "ubuntu", "amazon-linux-2023"], var.distribution)
    error_message = "The distribution is debian, ubuntu or amazon-linux-2023."
  }
}

variable "architecture" {
  type        = string
  default     = "amd64"
  description = "amd64 or arm64."
  validation {
    condition     = contains(["amd64", "arm64"], var.architecture)
    error_message = "The architecture is amd64 or arm64."
  }
}

variable "base_name" {
  type        = string
  default     = ""
  description = "A name filter that replaces the distribution's; the newest image that matches is taken."
}

variable "base_owner" {
  type        = string
  default     = ""
  description = "The account that replaces the distribution's as owner of the base image."
  validation {
    condition     = regex_replace(var.base_owner, "^([0-9]{12}|self|amazon|)$", "") == ""
    error_message = "The owner is an account of 12 digits, self or amazon."
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
  description = "The KMS key to encrypt with; without one, the account's own for EBS."
}

variable "imdsv2_only" {
  type        = bool
  default     = true
  description = "Instances of the image answer metadata requests with a session token only. Needs the AWS CLI beside Packer."
}

variable "ssh_from" {
  type        = list(string)
  default     = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
  description = "The networks that may reach the instance's SSH during the build: yours, where you build from outside the VPC."
}

variable "subnet" {
  type        = string
  default     = ""
  description = "The subnet to build in; without one, the default VPC's."
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "More tags for the image, its snapshots and the instance."
}

variable "disk" {
  type        = string
  default     = "disk.qcow2"
  description = "For qemu: the disk image to begin with; it is copied, not changed."
}

variable "disk_checksum" {
  type        = string
  default     = "none"
  description = "For qemu: the checksum of that disk image, like sha256:ABC; none only for an image of your own."
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "For qemu: kvm, or tcg where there is none."
  validation {
    condition     = contains(["kvm", "tcg"], var.accelerator)
    error_message = "The accelerator is kvm or tcg."
  }
}

variable "ssh_user" {
  type        = string
  default     = "root"
  description = "For qemu: who logs in; root, or somebody who may sudo without a password."
}

variable "ssh_key" {
  type        = string
  default     = ""
  description = "For qemu: the file of the private key that the disk image lets in."
}

variable "qemu_args" {
  type        = list(list(string))
  default     = []
  description = "For qemu: more arguments, like [[\"-cdrom\", \"seed.iso\"]]."
}

locals {
  bases = {
    debian = {
      owner = "136693071363"
      name  = "debian-12-${var.architecture}-*"
      user  = "admin"
    }
    ubuntu = {
      owner = "099720109477"
      name  = "ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-${var.architecture}-server-*"
      user  = "ubuntu"
    }
    amazon-linux-2023 = {
      owner = "amazon"
      name  = "al2023-ami-2023.*-kernel-*-${var.architecture == "amd64" ? "x86_64" : "arm64"}"
      user  = "ec2-user"
    }
  }
  base = local.bases[var.distribution]
  name = "nodegate-${var.distribution}-${var.architecture}-${formatdate("YYYYMMDD-hhmmss", timestamp())}"
  tags = merge({ Name = "nodegate-${var.distribution}", nodegate-base = var.distribution }, var.tags)
}

# Credentials come from where the AWS SDK looks for them: the environment, a
# profile, a role. The SSH key is made for the build and forgotten.
source "amazon-ebs" "node" {
  region        = var.region
  instance_type = var.instance_type
  subnet_id     = var.subnet
  ami_name      = local.name
  source_ami_filter {
    filters = {
      name                = var.base_name != "" ? var.base_name : local.base.name
      architecture        = var.architecture == "amd64" ? "x86_64" : "arm64"
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
    owners      = [var.base_owner != "" ? var.base_owner : local.base.owner]
    most_recent = true
  }
  encrypt_boot                          = var.encrypt
  kms_key_id                            = var.kms_key
  temporary_security_group_source_cidrs = var.ssh_from
  ssh_username                          = local.base.user
  ssh_clear_authorized_keys             = true
  tags                                  = local.tags
  snapshot_tags                         = local.tags
  run_tags                              = local.tags
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
  # Packer's own -netdev would let the whole network reach the machine's SSH.
  qemuargs = concat([["-netdev", "user,id=user.0,hostfwd=tcp:127.0.0.1:{{ .SSHHostPort }}-:22"]], var.qemu_args)
}

build {
  sources = ["source.amazon-ebs.node", "source.qemu.node"]

  provisioner "shell-local" {
    inline = ["mkdir -p '${var.output}'"]
  }

  provisioner "shell-local" {
    only   = ["amazon-ebs.node"]
    inline = ["${var.imdsv2_only ? "command -v aws" : "true"} || { echo 'imdsv2_only needs the AWS CLI: install it, or say -var imdsv2_only=false'; exit 1; }"]
  }

  provisioner "shell" {
    inline = ["mkdir -p nodegate-bake"]
  }

  provisioner "file" {
    source      = var.nodegate
    destination = "nodegate-bake/nodegate"
  }

  provisioner "file" {
    source      = var.policy
    destination = "nodegate-bake/${basename(var.policy)}"
  }

  # install writes the image. The report is kept whatever it says; whether the image
  # holds is asked once more below. apply proves that this kernel takes every
  # setting: what it changes is gone when the machine that builds stops.
  provisioner "shell" {
    execute_command = "if [ $(id -u) = 0 ]; then {{ .Vars }} sh -eu {{ .Path }}; else sudo {{ .Vars }} sh -eu {{ .Path }}; fi"
    inline = [
      "chmod 0755 nodegate-bake/nodegate",
      "nodegate-bake/nodegate install --policy 'nodegate-bake/${basename(var.policy)}'",
      "/usr/local/bin/nodegate check --stage image --format json --output nodegate-bake/report.json || [ $? = 1 ] || [ $? = 3 ]",
    ]
  }

  provisioner "file" {
    direction   = "download"
    source      = "nodegate-bake/report.json"
    destination = "${var.output}/${source.type}-report.json"
  }

  provisioner "shell" {
    execute_command = "if [ $(id -u) = 0 ]; then {{ .Vars }} sh -eu {{ .Path }}; else sudo {{ .Vars }} sh -eu {{ .Path }}; fi"
    inline = [
      "/usr/local/bin/nodegate check --stage image",
      "/usr/local/bin/nodegate apply",
      "rm -r nodegate-bake",
      "sync",
    ]
  }

  # The builder's own argument for this is not in every Packer that builds this file.
  post-processor "shell-local" {
    only = ["amazon-ebs.node"]
    inline = [
      "${var.imdsv2_only ? "true" : "exit 0"}",
      "image=$(aws ec2 describe-images --region ${var.region} --owners self --filters Name=name,Values=${local.name} --query 'Images[0].ImageId' --output text)",
      "aws ec2 modify-image-attribute --region ${var.region} --image-id $image --imds-support v2.0",
    ]
  }

  post-processor "manifest" {
    output     = "${var.output}/manifest.json"
    strip_path = true
    custom_data = {
      report = "${source.type}-report.json"
    }
  }
}
