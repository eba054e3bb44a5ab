# For Packer 1.7 and later, which takes its builders from plugins: `packer init .`
# fetches them. Debian's Packer 1.6 has them built in and refuses this block: give
# it packer.pkr.hcl alone.
packer {
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
