use "kubernetes" {}

gate {
  unit     = "kubelet.service"
  budget   = "20s"
  interval = "1s"
}

publish {}
