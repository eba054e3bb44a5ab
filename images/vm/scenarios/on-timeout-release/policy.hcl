use "kubernetes" {}

gate {
  unit       = "kubelet.service"
  budget     = "5s"
  interval   = "1s"
  on_timeout = "release"
}
