kubectl label pod slow app-
