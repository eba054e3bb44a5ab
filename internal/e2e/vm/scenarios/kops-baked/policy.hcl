use "kubernetes" {}

gate {
  repair = false
}
