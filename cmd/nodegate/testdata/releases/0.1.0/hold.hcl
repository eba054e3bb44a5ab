sysctl "net.ipv4.ip_forward" { value = 1 }
gate {
  repair = false
  interval = "100ms"
}
