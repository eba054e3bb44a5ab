use "kubernetes" {}

# The disk that is baked belongs to one node: it has the node's name, and its bootstrap credentials.
override "image.identity" {
  severity = "warn"
}
