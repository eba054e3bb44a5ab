use "kubernetes" {}
