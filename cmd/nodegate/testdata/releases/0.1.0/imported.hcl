# From `nodegate policy import`. Replace each reason by what the setting is for: the operator of a held node reads it.

sysctls {
  reason = "Imported."
  values = {
    "net.ipv4.ip_forward" = 1 # files/etc/sysctl.d/99-zz-nodegate.conf:3
  }
}
