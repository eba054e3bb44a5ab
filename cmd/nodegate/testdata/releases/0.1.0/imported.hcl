# From `nodegate policy import`. Replace each reason by what the setting is for: the operator of a held node reads it.
# The built-in policy has the checks of a Kubernetes node; without its use block only the settings below are required.

use "kubernetes" {}

sysctls {
  reason = "Imported."
  values = {
    "net.ipv4.ip_forward" = 1 # files/etc/sysctl.d/99-zz-nodegate.conf:3
  }
}
